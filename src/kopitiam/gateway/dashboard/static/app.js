// Which page is shown. An address is `#/`, `#/runs/<id>`, `#/upload`, `#/questions` or `#/fleet`.
import { h } from "./dom.js";
import { Refused } from "./gateway.js";
import { title } from "./parts/title.js";
import { enter, gateway, isReady } from "./session.js";
import { keepLeases } from "./upload/uploads.js";

const PAGES = [
  [/^#\/runs\/([a-z0-9]{16,32})$/, () => import("./pages/run.js")],
  [/^#\/upload$/, () => import("./pages/upload.js")],
  [/^#\/questions$/, () => import("./pages/questions.js")],
  [/^#\/fleet$/, () => import("./pages/fleet.js")],
  [/^(#\/?|#content)?$/, () => import("./pages/runs.js")],
];
const main = document.getElementById("content");
let leaving = new AbortController();
let isIncomplete = false;

async function show(about) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  markPlace();
  const found = PAGES.find(([pattern]) => pattern.test(location.hash));
  if (!found) return showNothing("There is no such page", "The address may be cut off.");
  try {
    const [pattern, load] = found;
    const page = await loaded(load);
    if (!signal.aborted) await page.show(main, { id: pattern.exec(location.hash)[1], about, signal });
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Refused && error.status === 404)
      showNothing(
        "No such run",
        "It may have been cleaned up: answers are kept for a day, unless configured otherwise. Or it belongs to another token.",
      );
    else showTrouble(error, about, signal);
  }
}

/** Shows the error until the gateway is back, then the page again. */
function showTrouble(error, about, signal) {
  showNothing("This did not work", error.message);
  const again = () => (error instanceof NotLoaded ? location.reload() : show(about));
  document.addEventListener("back", again, { once: true, signal });
  if (error instanceof NotLoaded) gateway.onSilence();
}

class NotLoaded extends Error {}

/** Loads a module. The browser caches a failed import, so only a reload can repeat it. */
async function loaded(load) {
  try {
    return await load();
  } catch (error) {
    isIncomplete ||= !(await isReady());
    throw isIncomplete ? new NotLoaded("A part of this page could not be loaded.") : error;
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
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address belongs to the page
  main.focus();
});
let about = null; // known once the visitor is signed in
addEventListener("hashchange", () => {
  document.body.dataset.entered = "yes"; // from now on the heading of a page takes the focus
  if (about) void show(about);
});
about = await enter();
keepLeases(about.lease_seconds);
void show(about);
await Promise.allSettled(PAGES.map(([, load]) => loaded(load))); // preloaded, for when the gateway is away
