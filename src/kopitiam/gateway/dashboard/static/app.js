// Which page is shown. An address is a path such as `#/runs/<id>`, perhaps with a query, as in `#/data/penang?version=3`.
import { h } from "./dom.js";
import { Refused } from "./gateway.js";
import { title } from "./parts/title.js";
import { enter, gateway, isReady, learnFleet } from "./session.js";
import { keepLeases } from "./upload/uploads.js";

const RUN = "([a-z0-9]{16,32})";
const DATA_SET = "([a-z][a-z0-9_-]{0,39})";
const ANSWER = "([a-z0-9_]{1,40})";
const PAGES = [
  [new RegExp(`^#/runs/${RUN}$`), () => import("./pages/run.js")],
  [new RegExp(`^#/runs/${RUN}/ask$`), () => import("./pages/ask.js")],
  [new RegExp(`^#/runs/${RUN}/behind/${ANSWER}$`), () => import("./pages/behind.js")],
  [new RegExp(`^#/changes/${RUN}/${RUN}$`), () => import("./pages/changes.js")],
  [/^#\/data$/, () => import("./pages/data.js")],
  [new RegExp(`^#/data/${DATA_SET}$`), () => import("./pages/dataset.js")],
  [new RegExp(`^#/data/${DATA_SET}/ask$`), () => import("./pages/ask.js")],
  [new RegExp(`^#/data/${DATA_SET}/sql$`), () => import("./pages/sql.js")],
  [/^#\/upload$/, () => import("./pages/upload.js")],
  [/^#\/questions$/, () => import("./pages/questions.js")],
  [/^#\/fleet$/, () => import("./pages/fleet.js")],
  [/^(#\/?|#content)?$/, () => import("./pages/runs.js")],
];
const PLACES = { "#/runs": "#/", "#/changes": "#/data" }; // the place in the navigation, if it is another one
const MISSING_RUN = [
  "No such run",
  "It may have been cleaned up: answers are kept for a day, unless configured otherwise. Or it belongs to another token.",
];
const main = document.getElementById("content");
let leaving = new AbortController();
let isIncomplete = false;

async function show(about) {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  markPlace();
  const [path, text = ""] = location.hash.split("?", 2);
  const found = PAGES.find(([pattern]) => pattern.test(path));
  if (!found) return showNothing("There is no such page", "The address may be cut off.");
  const [pattern, load] = found;
  const [, id, other] = pattern.exec(path);
  let page = null;
  try {
    page = await loaded(load);
    if (!signal.aborted) await page.show(main, { path, id, other, query: new URLSearchParams(text), about, signal });
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof Refused && error.status === 404) showNothing(...(page.missing ?? MISSING_RUN));
    else showFailure(error, about, signal);
  }
}

/** Shows the error until the gateway is back, then the page again. */
function showFailure(error, about, signal) {
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
  const [place] = (location.hash || "#/").split("?", 1);
  for (const link of document.querySelectorAll("nav a")) {
    const [first] = /^#\/[a-z]*/.exec(place) ?? ["#/"];
    const isHere = link.hash === (PLACES[first] ?? first);
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
void learnFleet();
void show(about);
await Promise.allSettled(PAGES.map(([, load]) => loaded(load))); // preloaded, for when the gateway is away
