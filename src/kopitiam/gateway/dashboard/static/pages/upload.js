// A new upload: drop a folder, see what was recognized, ask, send. Or drop it again, and go on where it stopped.
import { announce, fill, h } from "../dom.js";
import { bytes, moment, plural } from "../format.js";
import { card } from "../parts/marks.js";
import { title } from "../parts/title.js";
import { gateway, patiently } from "../session.js";
import { dropped, picked, recognize } from "../upload/recognize.js";
import { begin, boundsFor, interrupted } from "../upload/uploads.js";

export async function show(main, { about, signal }) {
  title(main, "New upload");
  const found = h("div", { class: "found" });
  const before = h("div");
  main.append(dropZone(take), before, found);
  let taken = 0;

  /** Of two folders that are let go one after the other, the last one counts. */
  async function take(files) {
    const mine = ++taken;
    const isOutdated = () => signal.aborted || mine !== taken;
    fill(found, h("p", { class: "soft" }, "Looking at the files…"));
    try {
      const { tables, ignored, flaws } = await recognize(await files, about.tables);
      if (isOutdated()) return;
      fill(found, tablesCard(tables, ignored, about.tables), flaws.length ? flawsCard(flaws) : null);
      if (!flaws.length) await offer(tables, isOutdated);
    } catch (error) {
      if (!isOutdated()) fill(found, flawsCard([error.message]));
    }
  }

  async function offer(tables, isOutdated) {
    announce("All five tables were recognized.");
    const open = await interrupted(tables);
    if (isOutdated()) return;
    found.append(
      ...open.map((upload) => resumeCard(upload, tables)),
      askCard(about, tables, open.length > 0),
    );
    found.querySelector("button.main")?.focus();
  }

  const waiting = await interrupted();
  if (waiting.length) fill(before, interruptedCard(waiting));
}

function dropZone(take) {
  const onpick = ({ target }) => {
    const chosen = [...target.files].map((file) => picked(file));
    target.value = ""; // or the same folder, once it is repaired, would be no change
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
    h(
      "p",
      { class: "soft" },
      "transactions, transaction_items, users, stores and menu_items, each in its folder",
    ),
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

function tablesCard(tables, ignored, wanted) {
  const line = (table) => {
    const own = tables[table];
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
    h("tbody", {}, Object.keys(wanted).map(line)),
  );
  const note = ignored.length
    ? h(
        "p",
        { class: "soft" },
        `${plural(ignored.length, "other file")} not needed: ${ignored.slice(0, 4).join(", ")}${ignored.length > 4 ? " …" : ""}`,
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

function askCard(about, tables, isSecond) {
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
      placeholder: "For you to find it again, such as Penang, January",
    }),
    h(
      "details",
      {},
      h("summary", {}, "What is asked"),
      h(
        "div",
        { class: "fields" },
        field("first-year", "From year", years[0], { type: "number", min: 1, max: 9998 }),
        field("last-year", "To year", years[1], { type: "number", min: 1, max: 9998 }),
        field("opening", "Opens", hours[0], { pattern: "\\d\\d:\\d\\d:\\d\\d" }),
        field("closing", "Closes (still in)", hours[1], { pattern: "\\d\\d:\\d\\d:\\d\\d" }),
        field("least", "Least amount (RM)", min_amount, { inputmode: "decimal" }),
        field("top", "Customers per store", top, { type: "number", min: 1, max: 100000 }),
      ),
    ),
    flaw,
    h("p", { class: "buttons" }, start),
  );
  const key = [...crypto.getRandomValues(new Uint8Array(16))]
    .map((byte) => byte.toString(16).padStart(2, "0"))
    .join("");
  const value = (id) => form.querySelector(`#${id}`).value.trim();

  async function open() {
    start.disabled = true;
    const questions = {
      years: [Number(value("first-year")), Number(value("last-year"))],
      hours: [value("opening"), value("closing")],
      min_amount: value("least"),
      top: Number(value("top")),
    };
    const label = value("label");
    try {
      const body = { label, questions, idempotency_key: key }; // an opening whose answer is lost opens no second run
      const { run } = await patiently(() => gateway.json("POST", "/runs", { body }));
      begin(run, label, tables, boundsFor(about));
      location.hash = `#/runs/${run}`;
    } catch (error) {
      fill(flaw, error.message);
      start.disabled = false;
    }
  }

  return card(isSecond ? "Or start anew" : "Start", form);
}

function resumeCard({ run, label, bounds, at }, tables) {
  const go = () => {
    begin(run, label, tables, bounds);
    location.hash = `#/runs/${run}`;
  };
  return card(
    "These files were being sent before",
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
      h("a", { href: `#/runs/${run}` }, label || "Without a label"),
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
