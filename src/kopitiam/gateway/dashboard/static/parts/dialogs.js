// A confirmation before something is removed.

/** True if the person says yes. With a name, the person must type it first. */
export function confirmed(heading, text, yes, name = null) {
  const dialog = document.getElementById("asking");
  const [button, input] = [document.getElementById("asking-yes"), document.getElementById("asking-name")];
  document.getElementById("asking-title").textContent = heading;
  document.getElementById("asking-text").textContent = text;
  document.getElementById("asking-typed").hidden = name === null;
  button.textContent = yes;
  button.disabled = name !== null;
  input.value = "";
  input.oninput = () => (button.disabled = name !== null && input.value.trim() !== name);
  dialog.returnValue = "no";
  dialog.showModal();
  (name === null ? document.getElementById("asking-no") : input).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes" && !button.disabled), { once: true });
  });
}
