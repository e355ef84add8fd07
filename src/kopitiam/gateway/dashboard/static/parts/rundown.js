// The parts of a run: its tables, its questions, its rejected rows.
import { h, keyed, say } from "../dom.js";
import { count, money } from "../format.js";
import { gateway, patiently } from "../session.js";
import { nameOf } from "./cells.js";
import { download } from "./downloads.js";
import { card, facts } from "./marks.js";
import { pagedTable } from "./table.js";

export function tablesOf() {
  const body = h("tbody");
  const row = ([name]) => {
    const cells = Array.from({ length: 4 }, () => h("td", { class: "figure" }));
    const element = h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), cells);
    element.figures = cells;
    return element;
  };
  const update = ({ figures }, [, { chunks, rows, rejected, sealed }]) =>
    [count(chunks), count(rows), count(rejected), sealed ? "yes" : "not yet"].forEach((text, i) =>
      say(figures[i], text),
    );
  const heads = ["Table", "Chunks", "Rows", "Rejected", "Complete"].map((text, i) =>
    h("th", { scope: "col", class: i ? "figure" : null }, text),
  );
  const table = h(
    "table",
    {},
    h("caption", { class: "unseen" }, "Rows received by table"),
    h("thead", {}, h("tr", {}, heads)),
    body,
  );
  return {
    element: h("div", { class: "scroll" }, table),
    update: ({ tables }) => keyed(body, Object.entries(tables), ([name]) => name, row, update),
  };
}

/** Parameters and questions. Titles of the catalog come from the gateway, those of own questions with the run. */
export function questionsOf({ years, hours, min_amount, top, ask, definitions = [] }, signal) {
  const list = h("ul", { class: "asked" });
  const element = h(
    "div",
    {},
    list,
    facts([
      ["Years", years[0] === years[1] ? `${years[0]}` : `${years[0]} to ${years[1]}`],
      ["Hours", `${hours[0]} to ${hours[1]}, both included`],
      ["Least amount", `${money(min_amount)} or more`],
      ["Places of a rank", count(top)],
    ]),
  );
  void patiently(() => gateway.get("/questions", signal), signal)
    .then(({ questions }) => {
      const titles = new Map([...questions, ...definitions].map(({ name, title }) => [name, title]));
      const names = ask ?? questions.map(({ name }) => name);
      list.append(...names.map((name) => h("li", {}, nameOf(titles.get(name) ?? name))));
    })
    .catch(() => {}); // the rest of the page shows the error
  return element;
}

/** Shows the rows that do not parse, with file, line and reason. */
export function rejectedOf(id, signal) {
  const columns = [
    { title: "File", cell: ([table, file]) => h("bdi", {}, file || table) },
    { title: "Line", cell: ([, , line]) => count(line), isFigure: true },
    { title: "Reason", cell: ([, , , reason]) => h("bdi", {}, reason) },
    { title: "Row", cell: ([, , , , row]) => h("code", { class: "cut", dir: "auto", title: row }, row) },
  ];
  const load = ({ offset, limit }) =>
    patiently(() => gateway.get(`/runs/${id}/rejected?offset=${offset}&limit=${limit}`, signal), signal);
  const table = pagedTable({
    caption: "Rejected rows",
    columns,
    load,
    limit: 10,
    empty: "They were counted, and never sent.",
  });
  const note = h("p", { class: "soft" });
  const element = card(
    "Rejected rows",
    note,
    h("p", { class: "buttons" }, download("Download all as CSV", `/runs/${id}/rejected.csv`, "rejected.csv")),
    table.element,
  );
  element.hidden = true;
  let seen = 0;
  return {
    element,
    update({ rejected, state }) {
      element.hidden = rejected === 0 || state === "ended";
      if (element.hidden || seen === rejected) return;
      seen = rejected;
      say(
        note,
        `${count(rejected)} rows do not parse. They count in no answer, and are kept with file, line and reason.`,
      );
      void table.show();
    },
  };
}
