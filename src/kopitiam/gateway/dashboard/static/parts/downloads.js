// Files taken away. With a token they are fetched here, so that it stays out of addresses and of the history.
import { h } from "../dom.js";
import { gateway, token } from "../session.js";

export function download(label, path, name) {
  if (!token()) return h("a", { class: "button small", href: `/api/v1${path}`, download: name }, label);
  const button = h(
    "button",
    { type: "button", class: "small", onclick: () => fetched(button, path, name) },
    label,
  );
  return button;
}

async function fetched(button, path, name) {
  button.disabled = true;
  try {
    const response = await gateway.call("GET", path);
    const address = URL.createObjectURL(await response.blob());
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    button.title = error.message;
    button.classList.add("failed");
  } finally {
    button.disabled = false;
  }
}
