// The months of a data set as a calendar: a table of sales by year and month, with a state for each month.
import { h } from "../dom.js";
import { monthsOf } from "../data.js";
import { plural, short } from "../format.js";
import { nameOf } from "./cells.js";

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const MOST_YEARS = 40; // a name with a wrong year must not make a table of thousands

/** `version` is the one whose files are shown: {added, replaced} are paths of files that it changed. */
export function calendarOf(files, version) {
  const { tables, last, others } = monthsOf(files);
  const stateOf = ({ table, name }) => {
    const path = `${table}/${name}`;
    if (version?.replaced.includes(path)) return "replaced";
    return version?.added.includes(path) ? "added" : "there";
  };
  return h(
    "div",
    { class: "calendar" },
    tables.length ? legend() : h("p", { class: "soft" }, "No file has a month in its name, such as sales_202401.csv."),
    tables.map((one) => yearsOf(one, last, stateOf)),
    others.length ? [h("h3", {}, "Files without a month"), h("ul", { class: "plain" }, others.map((file) => other(file, stateOf(file))))] : null,
  );
}

function legend() {
  const mark = (state, text) => h("li", {}, h("i", { class: state, "aria-hidden": "true" }), text);
  return h(
    "ul",
    { class: "legend", "aria-label": "What the colours mean" },
    mark("there", "there"),
    mark("added", "added by this version"),
    mark("replaced", "replaced by this version"),
    mark("missing", "missing: later months are there"),
  );
}

function yearsOf({ table, first, months }, last, stateOf) {
  const begin = Math.floor(first / 12);
  const years = Array.from({ length: Math.min(Math.floor(last / 12) - begin + 1, MOST_YEARS) }, (_, n) => begin + n);
  const cell = (month) => {
    const file = months.get(month);
    if (file) return h("td", { class: stateOf(file), title: `${file.name}: ${plural(file.rows, "row")}` }, h("b", {}, short(file.rows)), h("small", {}, stateOf(file)));
    const isMissing = month > first && month <= last;
    return isMissing ? h("td", { class: "missing" }, h("b", { "aria-hidden": "true" }, "–"), h("small", {}, "missing")) : h("td", {});
  };
  const year = (number) =>
    h("tr", {}, h("th", { scope: "row" }, `${number}`), MONTHS.map((_, n) => cell(number * 12 + n)));
  const caption = `${table}: rows by month`;
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, h("code", {}, table), h("span", { class: "soft" }, ` rows by month, ${plural(months.size, "month")} there`)),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Year"), MONTHS.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, years.map(year)),
    ),
  );
}

const other = ({ table, name, rows }, state) =>
  h("li", {}, h("code", {}, table), " ", nameOf(name), h("span", { class: "soft" }, ` ${plural(rows, "row")}, ${state}`));
