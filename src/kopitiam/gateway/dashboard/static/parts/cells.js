// Values of an answer as people read them, by the kind and role of their column. Names are isolated from what
// stands beside them, in any script, and shortened, with the whole name on hover.
import { h } from "../dom.js";
import { FIGURE_SPACE, grouped, money } from "../format.js";

export const EMPTY = "empty";
const FIGURES = ["count", "money", "number"];
const SHORT_NAME = 30; // characters that fit into every column

export const isFigure = ({ kind }) => FIGURES.includes(kind);

/** The exact text of a cell. A whole number has separators only if it is measured: a key may be a year. */
export function cellText({ kind, role }, text) {
  if (text === "") return EMPTY;
  if (kind === "money") return money(text);
  if (kind === "number") return grouped(text);
  if (kind === "count") return role === "measure" ? grouped(text) : text;
  if (kind === "boolean") return text === "true" ? "yes" : "no";
  return text;
}

/** A name from the data: isolated, cut by the page where it is too long. */
export function nameOf(text) {
  return h("bdi", { class: "name", title: text.length > SHORT_NAME ? text : null }, text);
}

/** What stands in the cell of a row: `row` has the texts of all columns by name. */
export function cellOf(column, row) {
  const text = cellText(column, row[column.name]);
  if (isFigure(column)) return text;
  if (text === EMPTY && row[column.name] === "") return h("span", { class: "soft" }, EMPTY);
  if (column.kind !== "text") return text;
  const isUnknown = column.matched !== null && row[column.matched] === "false";
  return isUnknown ? h("span", {}, nameOf(text), h("em", { class: "soft" }, " not in its table")) : nameOf(text);
}

/** Figures of one column, with blanks behind, so that their points stand below each other. */
export function aligned(texts) {
  const decimals = (text) => (text.includes(".") ? text.length - text.indexOf(".") : 0);
  const most = Math.max(0, ...texts.map(decimals));
  return texts.map((text) => text + FIGURE_SPACE.repeat(most - decimals(text)));
}
