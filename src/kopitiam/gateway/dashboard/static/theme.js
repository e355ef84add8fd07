// Sets the theme before the first paint, so that a dark page does not flash: no module, no imports.
{
  const KEY = "kopitiam.theme";
  const NEXT = { auto: "light", light: "dark", dark: "auto" };
  const SHOWN = { auto: "◐ Auto", light: "☀ Light", dark: "☾ Dark" };

  const chosen = () => localStorage.getItem(KEY) ?? "auto";

  const apply = () => {
    if (chosen() === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen();
    const button = document.getElementById("theme");
    if (button) {
      button.textContent = SHOWN[chosen()];
      button.setAttribute("aria-label", `Colours: ${chosen()}. Change`);
    }
    document.dispatchEvent(new Event("theme"));
  };

  apply();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      localStorage.setItem(KEY, NEXT[chosen()]);
      apply();
    });
  });
}
