// Which page is shown. An address is `#/`, `#/runs/<id>`, `#/upload` or `#/fleet`.
import { h } from "./dom.js";
import { Refused } from "./gateway.js";
import { title } from "./parts/title.js";
import { enter } from "./session.js";
import "./upload/uploads.js"; // keeps what was begun alive, whichever page is shown

const PAGES = [
  [/^#\/runs\/([a-z0-9]{16,32})$/, () => import("./pages/run.js")],
  [/^#\/upload$/, () => import("./pages/upload.js")],
  [/^#\/fleet$/, () => import("./pages/fleet.js")],
  [/^(#\/?|#content)?$/, () => import("./pages/runs.js")],
];
const main = document.getElementById("content");
let leaving = new AbortController();

async function show(about) {
  if (location.hash === "#content" && document.body.dataset.entered) return; // the skip link
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  markPlace();
  const found = PAGES.find(([pattern]) => pattern.test(location.hash));
  if (!found) return showNothing("There is no such page", "The address may be cut off.");
  try {
    const [pattern, load] = found;
    const page = await load();
    if (!signal.aborted) await page.show(main, { id: pattern.exec(location.hash)[1], about, signal });
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Refused && error.status === 404)
      showNothing(
        "No such run",
        "It may have been cleaned up: answers are kept for a day, unless configured otherwise. Or it belongs to another token.",
      );
    else showNothing("This did not work", error.message);
  }
}

function showNothing(heading, text) {
  title(main, heading);
  main.append(h("p", { class: "empty" }, text, " ", h("a", { href: "#/" }, "All runs")));
}

function markPlace() {
  for (const link of document.querySelectorAll("nav a")) {
    const isHere =
      link.hash === (location.hash || "#/") || (link.hash === "#/" && location.hash.startsWith("#/runs"));
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

markPlace();
const about = await enter();
addEventListener("hashchange", () => {
  document.body.dataset.entered = "yes"; // however soon it came, even before the first page was there
  return show(about);
});
await show(about);
