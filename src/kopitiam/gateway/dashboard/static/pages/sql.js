// SQL over a version of a data set: a query, its rows, and the tables that it can read.
import { dataPlace, dataSet, tablesIn } from "../data.js";
import { h } from "../dom.js";
import { plural } from "../format.js";
import { card } from "../parts/marks.js";
import { queryView } from "../parts/query.js";
import { rename, title } from "../parts/title.js";

const MOST_CHARACTERS = 20_000;
const EXAMPLE = `SELECT year(created_at) AS year, count(*) AS purchases, sum(final_amount) AS revenue
FROM transactions
GROUP BY 1
ORDER BY 1`;

export const missing = ["No such data set", "It may have been dropped, or it belongs to another token."];

export async function show(main, { id: name, query, signal }) {
  const heading = title(main, "SQL");
  const owner = query.get("owner") ?? "";
  const detail = await dataSet(name, { version: query.get("version"), owner }, signal);
  const back = h("a", { class: "button", href: dataPlace(name, { owner }) }, "The data set");
  rename(heading, `SQL: ${name}, version ${detail.version}`, back);
  const result = queryView({ name, owner, signal });
  const text = h("textarea", {
    id: "sql",
    rows: 10,
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    maxlength: MOST_CHARACTERS,
    "aria-describedby": "sql-help",
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), run());
    },
  });
  text.value = EXAMPLE;
  const run = () => result.run(text.value, detail.version);
  const form = h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), run()) },
    h("div", { class: "field" }, h("label", { for: "sql" }, "Query"), text),
    h("p", { class: "soft", id: "sql-help" }, "One SELECT of Spark SQL over the tables beside it. Ctrl and Enter run it. Amounts are exact decimals."),
    h("p", { class: "buttons" }, h("button", { class: "main" }, "Run")),
  );
  main.append(
    h("div", { class: "halves" }, card("Query", form), card("Tables", tablesList(tablesIn(detail.files)))),
    card("Result", result.element),
  );
}

function tablesList(tables) {
  const entry = ([table, { columns, rows }]) =>
    h("div", {}, h("dt", {}, h("code", {}, table), ` ${plural(rows, "row")}`), h("dd", {}, h("code", {}, columns.join(", "))));
  return h("dl", { class: "facts columns" }, Object.entries(tables).map(entry));
}
