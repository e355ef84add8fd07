// A confirmation before something is removed.

/** True if the person says yes. */
export function confirmed(heading, text, yes) {
  const dialog = document.getElementById("asking");
  document.getElementById("asking-title").textContent = heading;
  document.getElementById("asking-text").textContent = text;
  document.getElementById("asking-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  document.getElementById("asking-no").focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
