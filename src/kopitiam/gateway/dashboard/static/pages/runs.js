// All runs, newest first, a page at a time, with state, progress and speed.
import { fill, h, keyed, repeat, say } from "../dom.js";
import { count, duration, moment, percent, plural, short } from "../format.js";
import { Pace, STATES, figures, isOver, share, timeLeft, words } from "../progress.js";
import { gateway, now, patiently } from "../session.js";
import { badge, bar, showShare } from "../parts/marks.js";
import { title } from "../parts/title.js";

const PAGE = 25;
const LOOK_SECONDS = 2;
const FILTERS = {
  All: [],
  Running: ["open", "sealed", "final"],
  Done: ["done"],
  Failed: ["failed"],
  Ended: ["ended"],
};

export async function show(main, { signal }) {
  const view = { filter: "All", search: "", cursors: [null], next: null };
  const paces = new Map();
  title(main, "Runs", h("a", { class: "button main", href: "#/upload" }, "New upload"));
  const body = h("tbody");
  const table = h(
    "table",
    { class: "runs" },
    h("caption", { class: "unseen" }, "Runs, newest first"),
    heading(),
    body,
  );
  const empty = h("div", { class: "empty" });
  const place = h("span", { class: "soft", "aria-live": "polite" });
  const newer = h("button", { type: "button", onclick: () => turn(-1) }, "← Newer");
  const older = h("button", { type: "button", onclick: () => turn(1) }, "Older →");
  const leaf = h("nav", { class: "leaf", "aria-label": "Pages of runs" }, place, newer, older);
  main.append(filters(view, restart), h("div", { class: "card wide" }, table, empty), leaf);
  table.hidden = true;
  fill(empty, h("p", {}, "Loading…"));
  let looking = 0;

  async function look() {
    const mine = ++looking;
    const query = new URLSearchParams({ limit: PAGE });
    if (view.cursors.at(-1)) query.set("before", view.cursors.at(-1));
    if (view.search) query.set("search", view.search);
    for (const state of FILTERS[view.filter]) query.append("state", state);
    const found = await patiently(() => gateway.get(`/runs?${query}`, signal), signal);
    if (mine === looking) draw(found);
  }

  function draw({ runs, next, total }) {
    view.next = next;
    table.hidden = !runs.length;
    empty.hidden = runs.length > 0;
    if (!runs.length) fill(empty, ...nothing(view));
    keyed(
      body,
      runs,
      (status) => status.run,
      row,
      (element, status) => {
        if (!paces.has(status.run)) paces.set(status.run, new Pace());
        update(element, status, paces.get(status.run).look(status, now()));
      },
    );
    const first = (view.cursors.length - 1) * PAGE;
    say(
      place,
      runs.length ? `${count(first + 1)}–${count(first + runs.length)} of ${plural(total, "run")}` : "",
    );
    newer.disabled = view.cursors.length === 1;
    older.disabled = next === null;
    leaf.hidden = newer.disabled && older.disabled && !runs.length;
  }

  function turn(step) {
    if (step > 0) view.cursors.push(view.next);
    else view.cursors.pop();
    newer.disabled = older.disabled = true;
    return look().catch(ignoreLeaving);
  }

  function restart() {
    view.cursors = [null];
    return look().catch(ignoreLeaving);
  }

  function ignoreLeaving(error) {
    if (!signal.aborted) throw error;
  }

  document.addEventListener("back", () => look().catch(ignoreLeaving), { signal });
  await repeat(LOOK_SECONDS, signal, look);
}

function filters(view, restart) {
  let waiting = null;
  const chips = Object.keys(FILTERS).map((name) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(name === view.filter),
        onclick: (event) => {
          view.filter = name;
          for (const chip of chips) chip.setAttribute("aria-pressed", String(chip === event.currentTarget));
          restart();
        },
      },
      name,
    ),
  );
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: "Label or id",
    maxlength: 200,
    oninput: () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => ((view.search = search.value.trim()), restart()), 200);
    },
  });
  const label = h("label", { for: "search", class: "unseen" }, "Search runs by label or id");
  return h(
    "div",
    { class: "filters" },
    h("div", { class: "chips", role: "group", "aria-label": "State" }, chips),
    label,
    search,
  );
}

function heading() {
  const titles = [
    ["Run"],
    ["State"],
    ["Progress"],
    ["Rows", true],
    ["Rows/s", true],
    ["Time left", true],
    ["Started"],
  ];
  const cells = titles.map(([text, isFigure]) =>
    h("th", { scope: "col", class: isFigure ? "figure" : null }, text),
  );
  return h("thead", {}, h("tr", {}, cells));
}

function row(status) {
  const link = h("a", { href: `#/runs/${status.run}` }, h("bdi", {}, status.label || "Without a label"));
  const cell = (name, isFigure) => h("td", { class: isFigure ? `figure ${name}` : name, "data-title": name });
  const cells = {
    state: cell("State"),
    progress: cell("Progress"),
    rows: cell("Rows", true),
    rate: cell("Rows/s", true),
    left: cell("Time left", true),
    since: cell("Started"),
  };
  const meter = bar(`Progress of ${status.label || status.run}`);
  const sentence = h("span", { class: "soft sentence" });
  cells.progress.append(meter, sentence);
  const name = h(
    "th",
    { scope: "row", class: "name" },
    link,
    h("code", { class: "soft" }, status.run.slice(0, 8)),
  );
  const element = h("tr", {}, name, ...Object.values(cells));
  element.parts = { ...cells, meter, sentence };
  return element;
}

function update(element, status, pace) {
  const { parts } = element;
  const { durable } = figures(status);
  const rate = isOver(status) ? null : pace.rate(status, now());
  const left = rate === null ? null : timeLeft(status, rate);
  if (parts.state.dataset.state !== status.state) {
    parts.state.dataset.state = status.state;
    fill(parts.state, badge(status.state, STATES[status.state]));
  }
  showShare(parts.meter, status.state, share(status));
  const done = share(status);
  say(parts.sentence, done === null || isOver(status) ? words(status) : percent(done));
  say(parts.rows, count(durable));
  say(parts.rate, rate ? short(rate) : "–");
  say(parts.left, left === null ? "–" : duration(left));
  say(parts.since, moment(status.created_at));
}

function nothing(view) {
  if (view.search || view.filter !== "All") return [h("p", {}, "No run matches.")];
  return [
    h("h2", {}, "No runs yet"),
    h("p", {}, "Drop a folder of CSV exports, and questions about its sales are answered, exactly."),
    h("p", {}, h("a", { class: "button main", href: "#/upload" }, "Start with a folder")),
    h(
      "p",
      { class: "soft" },
      "Or from a terminal: ",
      h("code", {}, `kopi submit FOLDER --server ${location.origin}`),
    ),
  ];
}
