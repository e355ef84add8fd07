// A new upload: select questions, drop a folder, see what was recognized, send. Or drop it again, and continue where
// it stopped. The questions determine the needed tables.
import { announce, fill, h } from "../dom.js";
import { bytes, moment, plural } from "../format.js";
import { nameOf } from "../parts/cells.js";
import { card } from "../parts/marks.js";
import { title } from "../parts/title.js";
import { askedOf, choose, chosen, neededBy, offered } from "../questions.js";
import { gateway, patiently } from "../session.js";
import { dropped, flawsIn, picked, recognize } from "../upload/recognize.js";
import { begin, boundsFor, interrupted, tablesSent } from "../upload/uploads.js";

export async function show(main, { about, signal }) {
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
      const [offer, waiting] = await Promise.all([offering, interrupted()]);
      const names = [...Object.keys(neededBy(offer.questions)), ...waiting.flatMap(tablesSent)];
      const { tables, ignored } = recognize(await files, [...new Set(names)]);
      const open = await interrupted(tables);
      if (!isOutdated()) await propose({ tables, ignored, open, ...offer }, isOutdated);
    } catch (error) {
      if (!isOutdated()) fill(found, flawsCard([error.message]));
    }
  }

  async function propose({ tables, ignored, open, questions, flaws: ownFlaws }, isOutdated) {
    const names = chosen(questions);
    const places = { tables: h("div"), flaws: h("div") };
    const ask = askCard({ about, questions, names, ownFlaws, isSecond: open.length > 0, look, send });
    fill(
      found,
      places.tables,
      places.flaws,
      open.map((upload) => resumeCard(upload, tables)),
      ask.element,
    );
    const isSound = await look();
    if (isSound && !isOutdated()) {
      announce("All tables that are needed were recognized.");
      found.querySelector("button.main:not([hidden])")?.focus();
    }

    /** Again whenever other questions are chosen: they need other tables. */
    async function look() {
      const needed = neededBy(questions.filter(({ name }) => names.has(name)));
      const flaws = names.size ? await flawsIn(tables, needed) : ["No question is chosen."];
      if (isOutdated()) return false;
      const inOrder = [...new Set([...Object.keys(about.tables), ...Object.keys(needed)])];
      fill(places.tables, tablesCard(tables, ignored, inOrder.filter((table) => table in needed)));
      fill(places.flaws, flaws.length ? flawsCard(flaws) : null);
      ask.allow(!flaws.length);
      return !flaws.length;
    }

    /** The run lists its tables in the order of upload. */
    function send({ run, label, tables: wanted }) {
      const sent = Object.fromEntries(Object.keys(wanted).map((table) => [table, tables[table]]));
      begin(run, label, sent, boundsFor(about));
      location.hash = `#/runs/${run}`;
    }
  }

  const waiting = await interrupted();
  if (waiting.length) fill(before, interruptedCard(waiting));
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
    accept: ".csv,text/csv",
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

function tablesCard(tables, ignored, needed) {
  const line = (table) => {
    const own = tables[table] ?? [];
    const size = own.reduce((whole, { file }) => whole + file.size, 0);
    const names =
      own.length > 3
        ? `${own[0].file.name} … ${own.at(-1).file.name}`
        : own.map(({ file }) => file.name).join(", ");
    const cells = own.length ? [plural(own.length, "file"), bytes(size), names] : ["missing", "–", "–"];
    return h(
      "tr",
      { class: own.length ? null : "lacking" },
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
  return card("What was recognized", h("div", { class: "scroll" }, table), note);
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

function askCard({ about, questions, names, ownFlaws, isSecond, look, send }) {
  const { years, hours, min_amount, top } = about.questions;
  const field = (id, label, value, attributes = {}) =>
    h("div", { class: "field" }, h("label", { for: id }, label), h("input", { id, value, ...attributes }));
  const flaw = h("p", { class: "flaw", role: "alert" });
  const start = h(
    "button",
    { class: isSecond ? null : "main" },
    isSecond ? "Start a new run instead" : "Start",
  );
  const form = h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), open()) },
    field("label", "Label", "", {
      maxlength: 200,
      placeholder: "A name to find it by, such as Penang, January",
    }),
    questionsField(questions, names, ownFlaws, look),
    h(
      "details",
      {},
      h("summary", {}, "Parameters"),
      h(
        "div",
        { class: "fields" },
        field("first-year", "From year", years[0], { type: "number", min: 1, max: 9998 }),
        field("last-year", "To year", years[1], { type: "number", min: 1, max: 9998 }),
        field("opening", "Opens", hours[0], { pattern: "\\d\\d:\\d\\d:\\d\\d" }),
        field("closing", "Closes (inclusive)", hours[1], { pattern: "\\d\\d:\\d\\d:\\d\\d" }),
        field("least", "Least amount (RM)", min_amount, { inputmode: "decimal" }),
        field("top", "Places of a rank", top, { type: "number", min: 1, max: 100000 }),
      ),
    ),
    flaw,
    h("p", { class: "buttons" }, start),
  );
  let key = freshKey(); // a repeated request opens no second run, unless something was changed
  form.addEventListener("change", () => (key = freshKey()));
  const value = (id) => form.querySelector(`#${id}`).value.trim();

  async function open() {
    start.disabled = true;
    const asked = {
      years: [Number(value("first-year")), Number(value("last-year"))],
      hours: [value("opening"), value("closing")],
      min_amount: value("least"),
      top: Number(value("top")),
      ...askedOf(questions, names),
    };
    const label = value("label");
    try {
      const body = { label, questions: asked, idempotency_key: key };
      send(await patiently(() => gateway.json("POST", "/runs", { body })));
    } catch (error) {
      fill(flaw, error.message);
      start.disabled = false;
    }
  }

  return {
    element: card(isSecond ? "Or start a new run" : "Start", form),
    allow: (isSound) => (start.hidden = !isSound),
  };
}

const freshKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function questionsField(questions, names, ownFlaws, look) {
  const box = ({ name, title: text, builtin }) => {
    const id = `ask-${name}`;
    const change = ({ target }) => {
      if (target.checked) names.add(name);
      else names.delete(name);
      choose(names);
      void look();
    };
    const input = h("input", { type: "checkbox", id, checked: names.has(name), onchange: change });
    return h("li", {}, input, h("label", { for: id }, nameOf(text), builtin ? null : h("em", { class: "soft" }, " yours")));
  };
  return h(
    "fieldset",
    {},
    h("legend", {}, "Questions"),
    h("ul", { class: "choices" }, questions.map(box)),
    ownFlaws.length
      ? h("p", { class: "flaw" }, "Your own questions have a flaw: ", ownFlaws[0].message)
      : null,
    h("p", {}, h("a", { href: "#/questions" }, "Write your own questions")),
  );
}

function resumeCard(upload, tables) {
  const { run, label, bounds, at } = upload;
  const go = () => {
    begin(run, label, Object.fromEntries(tablesSent(upload).map((table) => [table, tables[table]])), bounds);
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
