// A new upload: select questions, drop a folder, see what was recognized, send. Or drop it again, and continue where
// it stopped. The questions determine the needed tables; a data set keeps the files, and gets only those that differ.
import { versionIfAny } from "../data.js";
import { announce, fill, h } from "../dom.js";
import { bytes, moment, plural } from "../format.js";
import { askForm } from "../parts/ask.js";
import { card } from "../parts/marks.js";
import { targetFields } from "../parts/target.js";
import { title } from "../parts/title.js";
import { choose, chosen, neededBy, offered } from "../questions.js";
import { gateway, patiently } from "../session.js";
import { dropped, inspect, picked, recognize } from "../upload/recognize.js";
import { begin, boundsFor, interrupted, tablesSent } from "../upload/uploads.js";

export async function show(main, { query, about, signal }) {
  title(main, "New upload");
  const before = h("div");
  const found = h("div", { class: "found" });
  main.append(dropZone(take, Object.keys(about.tables)), before, found);
  const offering = offered(signal);
  offering.catch(() => {}); // handled where it is awaited
  let taken = 0;

  /** Of two folders that are dropped one after the other, the last one counts. */
  async function take(files) {
    const mine = ++taken;
    const isOutdated = () => signal.aborted || mine !== taken;
    fill(found, h("p", { class: "soft" }, "Reading the files…"));
    try {
      const { tables, ignored } = recognize(await files, Object.keys(about.layout));
      const [offer, open] = await Promise.all([offering, interrupted(tables)]);
      if (!isOutdated()) await propose({ tables, ignored, open, ...offer }, isOutdated);
    } catch (error) {
      if (!isOutdated()) fill(found, flawsCard([error.message]));
    }
  }

  async function propose({ tables, ignored, open, questions, flaws: ownFlaws }, isOutdated) {
    const names = chosen(questions);
    const places = { tables: h("div"), flaws: h("div") };
    const target = targetFields({ name: query.get("data") ?? "", onChange: look, signal });
    const isSecond = open.length > 0;
    const form = askForm({
      values: about.questions,
      before: target.element,
      start: isSecond ? "Start a new run instead" : "Start",
      isMain: !isSecond,
      onChoice: (all) => (choose(all), look()),
      open: send,
    });
    form.offer(questions, names, aboutOwn(ownFlaws));
    let sending = {}; // tables to send, with the columns that they need
    let looking = 0;
    fill(
      found,
      places.tables,
      places.flaws,
      open.map((upload) => resumeCard(upload, tables)),
      card(isSecond ? "Or start a new run" : "Start", form.element),
    );
    const isSound = await look();
    if (isSound && !isOutdated()) {
      announce("All tables that are needed were recognized.");
      found.querySelector("button.main:not([hidden])")?.focus();
    }

    /** Again whenever other questions or another data set are chosen: they need other tables. */
    async function look() {
      const mine = ++looking;
      const needed = neededBy(questions.filter(({ name }) => names.has(name)));
      const held = target.name() ? await versionIfAny(target.name(), signal) : null;
      const kept = new Set(held?.files.map(({ table }) => table));
      const mayBeSent = (table) => table in needed || kept.has(table) || target.keepsAll();
      const isSent = (table) => tables[table].length > 0 || (table in needed && !kept.has(table));
      const toSend = Object.keys(about.layout).filter((table) => mayBeSent(table) && isSent(table));
      const columns = Object.fromEntries(toSend.map((table) => [table, needed[table] ?? []]));
      const { flaws, notes } = await inspect(tables, columns, ignored);
      if (isOutdated() || mine !== looking) return false;
      if (!names.size) flaws.splice(0, flaws.length, "No question is chosen.");
      else if (!toSend.length) flaws.push("No file of this folder belongs to a table that is needed or kept.");
      if (target.flaw()) flaws.push(target.flaw());
      sending = columns;
      target.describe(held);
      const shown = Object.keys(about.layout).filter((table) => table in columns || table in needed);
      fill(places.tables, tablesCard(tables, ignored, inOrder(shown, about), { notes, kept }));
      fill(places.flaws, flaws.length ? flawsCard(flaws) : null);
      form.allow(!flaws.length);
      return !flaws.length;
    }

    /** Tables are sent in the order in which the run lists them. */
    async function send(body) {
      const data = target.name() ? { layout: about.layout, keepsAll: target.keepsAll() } : null;
      const content = data ? { ...body, data: { name: target.name(), upload: true } } : body;
      const { run, label, tables: asked } = await patiently(() => gateway.json("POST", "/runs", { body: content }));
      const order = data ? Object.keys(sending) : Object.keys(asked);
      begin(run, label, Object.fromEntries(order.map((table) => [table, tables[table]])), boundsFor(about), data);
      location.hash = `#/runs/${run}`;
    }
  }

  const waiting = await interrupted();
  if (waiting.length) fill(before, interruptedCard(waiting));
}

/** The tables of the catalog first, as the run lists them. */
const inOrder = (tables, about) =>
  [...new Set([...Object.keys(about.tables), ...tables])].filter((table) => tables.includes(table));

function aboutOwn(flaws) {
  return [
    flaws.length ? h("p", { class: "flaw" }, "Your own questions have a flaw: ", flaws[0].message) : null,
    h("p", {}, h("a", { href: "#/questions" }, "Write your own questions")),
  ];
}

function dropZone(take, tables) {
  const onpick = ({ target }) => {
    const chosen = [...target.files].map((file) => picked(file));
    target.value = ""; // otherwise choosing the same folder again would be no change
    if (chosen.length) take(chosen);
  };
  const folder = h("input", {
    type: "file",
    id: "folder",
    webkitdirectory: true,
    class: "unseen",
    onchange: onpick,
  });
  const files = h("input", {
    type: "file",
    id: "files",
    multiple: true,
    accept: ".csv,.gz,text/csv",
    class: "unseen",
    onchange: onpick,
  });
  const zone = h(
    "div",
    { class: "drop" },
    h("p", { class: "big" }, "Drop the folder of CSV exports here"),
    h("p", { class: "soft" }, `${tables.join(", ")}, each in its folder; other questions may need others`),
    h(
      "p",
      { class: "buttons" },
      folder,
      h("label", { for: "folder", class: "button main" }, "Choose a folder"),
      files,
      h("label", { for: "files", class: "button" }, "Choose files"),
    ),
  );
  const mark = (isOver) => (event) => (event.preventDefault(), zone.classList.toggle("over", isOver));
  zone.addEventListener("dragover", mark(true));
  zone.addEventListener("dragleave", mark(false));
  zone.addEventListener("drop", (event) => {
    mark(false)(event);
    take(dropped(event.dataTransfer));
  });
  return zone;
}

function tablesCard(tables, ignored, needed, { notes, kept }) {
  const line = (table) => {
    const own = tables[table] ?? [];
    const size = own.reduce((whole, { file }) => whole + file.size, 0);
    const names =
      own.length > 3
        ? `${own[0].file.name} … ${own.at(-1).file.name}`
        : own.map(({ file }) => file.name).join(", ");
    const absent = kept.has(table) ? "in the data set" : "missing";
    const cells = own.length ? [plural(own.length, "file"), bytes(size), names] : [absent, "–", "–"];
    return h(
      "tr",
      { class: own.length || kept.has(table) ? null : "lacking" },
      h("th", { scope: "row" }, h("code", {}, table)),
      cells.map((text, i) => h("td", { class: i < 2 ? "figure" : "names soft" }, text)),
    );
  };
  const heads = ["Table", "Files", "Size", "Names"].map((text, i) =>
    h("th", { scope: "col", class: i === 1 || i === 2 ? "figure" : null }, text),
  );
  const table = h(
    "table",
    {},
    h("caption", { class: "unseen" }, "Tables that were recognized"),
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, needed.map(line)),
  );
  const unused = Object.entries(tables).filter(([name]) => !needed.includes(name));
  const others = [...ignored, ...unused.flatMap(([, own]) => own.map(({ path }) => path))];
  const note = others.length
    ? h(
        "p",
        { class: "soft" },
        `${plural(others.length, "other file")} not needed: ${others.slice(0, 4).join(", ")}${others.length > 4 ? " …" : ""}`,
      )
    : null;
  const inferred = h("ul", { class: "notes" }, notes.map((text) => h("li", {}, text)));
  return card("What was recognized", h("div", { class: "scroll" }, table), notes.length ? inferred : null, note);
}

function flawsCard(flaws) {
  return h(
    "div",
    { class: "banner bad", role: "alert" },
    h("p", {}, h("b", {}, "This cannot be sent as it is. "), "Nothing has been sent."),
    h(
      "ul",
      {},
      flaws.slice(0, 12).map((flaw) => h("li", {}, flaw)),
    ),
  );
}

function resumeCard(upload, tables) {
  const { run, label, bounds, at, data } = upload;
  const go = () => {
    begin(run, label, Object.fromEntries(tablesSent(upload).map((table) => [table, tables[table]])), bounds, data);
    location.hash = `#/runs/${run}`;
  };
  return card(
    "An upload of these files was interrupted",
    h(
      "p",
      {},
      `The upload ${label ? `“${label}” ` : ""}of ${moment(at / 1000)} is not complete. What the gateway has already is not sent again.`,
    ),
    h(
      "p",
      { class: "buttons" },
      h("button", { type: "button", class: "main", id: "resume", onclick: go }, "Continue where it stopped"),
    ),
  );
}

function interruptedCard(waiting) {
  const lines = waiting.map(({ run, label, at, files }) =>
    h(
      "li",
      {},
      h("a", { href: `#/runs/${run}` }, h("bdi", {}, label || "Without a label")),
      h("span", { class: "soft" }, ` begun ${moment(at / 1000)}, ${plural(files.length, "file")}`),
    ),
  );
  return h(
    "div",
    { class: "banner" },
    h(
      "p",
      {},
      h("b", {}, "An upload was interrupted. "),
      "Drop the same folder again, and only what is missing is sent.",
    ),
    h("ul", {}, lines),
  );
}
