// Downloads. With a token they are fetched here, so that it stays out of addresses and of the history.
import { h, say } from "../dom.js";
import { gateway, token, welcome } from "../session.js";

const FILE_SECONDS = 600;

export function download(label, path, name) {
  if (!token()) return h("a", { class: "button small", href: gateway.address(path), download: name }, label);
  const flaw = h("span", { class: "bad", role: "status" });
  const button = h(
    "button",
    { type: "button", class: "small", onclick: () => take(button, flaw, path, name) },
    label,
  );
  return h("span", { class: "taken" }, button, flaw);
}

async function take(button, flaw, path, name) {
  button.disabled = true;
  say(flaw, "");
  try {
    const address = URL.createObjectURL(await welcome(() => fileOf(path)));
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  } catch (error) {
    say(flaw, `${name} could not be downloaded: ${error.message}.`);
  } finally {
    button.disabled = false;
  }
}

const fileOf = (path) =>
  gateway.call("GET", path, (response) => response.blob(), { seconds: FILE_SECONDS });
