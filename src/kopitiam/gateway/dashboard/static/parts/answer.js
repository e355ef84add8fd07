// One answer of any question: title, chart, rows, files. All of it comes from the index. A figure leads to the rows
// behind it, if they are kept.
import { fill, h } from "../dom.js";
import { gateway, patiently } from "../session.js";
import { aligned, cellOf, cellText, isFigure } from "./cells.js";
import { download } from "./downloads.js";
import { pictureOf } from "./pictures.js";
import { pagedTable, plainTable } from "./table.js";

const FORMS = ["csv", "json", "parquet"];
const IMAGES = ["svg", "png", "pdf"];
const MOST_PLAIN = 60; // rows that are shown at once
const MOST_TURNED = 1000; // rows that are turned into lines and periods

export function answerOf(run, { name, title }, signal) {
  const id = `answer-${name}`;
  const about = h("p", { class: "soft" });
  const files = h("div", { class: "buttons" });
  const drawing = h("div", { class: "drawing", id: `chart-${name}`, tabindex: "0", role: "region" });
  drawing.setAttribute("aria-label", `Chart: ${title}`);
  const images = h("div", { class: "buttons images" });
  const place = h("div", { class: "rows" });
  const element = h(
    "article",
    { class: "card", id, "aria-labelledby": `${id}-heading` },
    h("header", {}, h("div", {}, h("h3", { id: `${id}-heading` }, title), about), files),
    drawing,
    images,
    place,
  );
  const path = `/runs/${run}/results/${name}`;
  const shown = { attempt: null, view: null, rows: null, isFinal: false };
  const cell = (column, row, text = cellOf(column, row)) =>
    column.role === "measure" && shown.isFinal && !shown.view.unlisted ? behind(run, shown.view, row, text) : text;
  const paged = pagedTable({
    caption: title,
    columns: () => listed(shown.view).map((column) => ({ ...head(column), cell: (row) => cell(column, row) })),
    load: rowsOf,
    searchLabel: "Search these rows",
  });

  async function rowsOf({ offset, limit, search = "" }) {
    const query = new URLSearchParams({ offset, limit, search, attempt: shown.attempt });
    const page = await patiently(() => gateway.get(`${path}/rows?${query}`, signal), signal);
    const named = (row) => Object.fromEntries(page.columns.map((column, i) => [column, row[i]]));
    return { ...page, rows: page.rows.map(named) };
  }

  async function draw({ chart, note }) {
    images.hidden = chart === null;
    drawing.hidden = chart === null && !note;
    if (chart === null) return void fill(drawing, note ? h("p", { class: "soft" }, note) : null);
    const read = (response) => response.text();
    const address = `${path}.svg?attempt=${shown.attempt}`;
    try {
      const text = await patiently(() => gateway.call("GET", address, read, { signal }), signal);
      fill(drawing, pictureOf(text));
    } catch (error) {
      if (signal.aborted || error.word === "replaced") return; // newer answers are on their way
      fill(drawing, h("p", { class: "soft" }, `There is no chart: ${error.message}.`));
    }
  }

  async function list(view) {
    const { pivot, rows: count } = view;
    if (count > (pivot ? MOST_TURNED : MOST_PLAIN)) {
      if (!paged.element.isConnected) fill(place, paged.element);
      return paged.show();
    }
    const { rows } = await rowsOf({ offset: 0, limit: MOST_TURNED });
    const text = JSON.stringify(rows);
    if (shown.rows === text && place.firstChild) return; // the same rows: the scroll position stays
    shown.rows = text;
    const turned = pivot && turn(title, view, rows, cell);
    if (!turned && count > MOST_PLAIN) {
      fill(place, paged.element);
      return paged.show();
    }
    fill(place, rows.length ? (turned ?? plain(title, listed(view), rows, cell)) : null);
  }

  return {
    element,
    /** Of the set of answers that the index is about. */
    async show(view, { attempt, provisional }) {
      about.textContent = view.about;
      if (shown.attempt === attempt) return;
      Object.assign(shown, { attempt, view, isFinal: !provisional });
      const query = provisional ? "?provisional=true" : "";
      const file = (form) => download(form.toUpperCase(), `${path}.${form}${query}`, `${view.file}.${form}`);
      fill(files, FORMS.map(file));
      fill(images, h("span", { class: "soft" }, "Chart as"), IMAGES.map(file));
      await Promise.all([draw(view), list(view)]);
    },
  };
}

const listed = ({ columns }) => columns.filter((column) => column.listed);
const head = (column) => ({ title: column.name, isFigure: isFigure(column) });

/** A link to the rows that a figure was computed from. */
function behind(run, { name, columns }, row, text) {
  const keys = columns.filter(({ role }) => role === "key").map((column) => ["key", row[column.name]]);
  const href = `#/runs/${run}/behind/${name}${keys.length ? `?${new URLSearchParams(keys)}` : ""}`;
  return h("a", { class: "behind", href, title: "The rows behind this figure" }, text);
}

function plain(caption, columns, rows, cell) {
  const figures = columns.map((column) =>
    column.kind === "money" || column.kind === "number"
      ? aligned(rows.map((row) => cellText(column, row[column.name])))
      : null,
  );
  const cells = rows.map((row, i) => columns.map((column, at) => cell(column, row, figures[at]?.[i])));
  return plainTable(caption, columns.map(head), cells);
}

/** A line for each value of one key, a column for each period; null if there are too many periods. */
function turn(caption, { columns, pivot }, rows, cell) {
  const column = (name) => columns.find((each) => each.name === name);
  const periods = [...new Set(rows.map((row) => row[pivot.period]))].sort();
  if (periods.length < 2 || periods.length > pivot.most_periods) return null;
  const lines = new Map(rows.map((row) => [row[pivot.lines], row]));
  const names = [...lines.values()].map((row) => row[pivot.label]);
  const isShared = (name) => names.filter((each) => each === name).length > 1;
  const inOrder = [...lines].sort(([, a], [, b]) => (a[pivot.label] < b[pivot.label] ? -1 : 1));
  const figures = new Map(rows.map((row) => [JSON.stringify([row[pivot.lines], row[pivot.period]]), row]));
  const rowOf = (line, period) => figures.get(JSON.stringify([line, period]));
  const textOf = (row) => (row ? cellText(column(pivot.figure), row[pivot.figure]) : "–");
  const figuresOf = (period) => {
    const own = inOrder.map(([line]) => rowOf(line, period));
    return aligned(own.map(textOf)).map((text, i) => (own[i] ? cell(column(pivot.figure), own[i], text) : text));
  };
  const texts = periods.map(figuresOf);
  const cells = inOrder.map(([line, row], i) => {
    const name = cellOf(column(pivot.label), row);
    const mark = isShared(row[pivot.label]) ? h("em", { class: "soft" }, ` ${pivot.lines} ${line}`) : null;
    return [mark ? h("span", {}, name, mark) : name, ...texts.map((figure) => figure[i])];
  });
  const heads = periods.map((period) => ({ title: period || "empty", isFigure: true }));
  return plainTable(caption, [head(column(pivot.label)), ...heads], cells);
}

