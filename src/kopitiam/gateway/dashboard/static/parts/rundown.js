// What a run is made of: its tables, its questions, the rows that were set aside.
import { h, say } from "../dom.js";
import { count, money } from "../format.js";
import { TABLES } from "../progress.js";
import { gateway, patiently } from "../session.js";
import { download } from "./downloads.js";
import { card, facts } from "./marks.js";
import { pagedTable } from "./table.js";

export function tablesOf() {
  const lines = Object.fromEntries(
    TABLES.map((table) => [table, Array.from({ length: 4 }, () => h("td", { class: "figure" }))]),
  );
  const rows = TABLES.map((table) =>
    h("tr", {}, h("th", { scope: "row" }, h("code", {}, table)), lines[table]),
  );
  const heads = ["Table", "Chunks", "Rows", "Rejected", "Complete"].map((text, i) =>
    h("th", { scope: "col", class: i ? "figure" : null }, text),
  );
  const table = h(
    "table",
    {},
    h("caption", { class: "unseen" }, "What has come of each table"),
    h("thead", {}, h("tr", {}, heads)),
    h("tbody", {}, rows),
  );
  return {
    element: h("div", { class: "scroll" }, table),
    update({ tables }) {
      for (const [name, { chunks, rows: found, rejected, sealed }] of Object.entries(tables)) {
        [count(chunks), count(found), count(rejected), sealed ? "yes" : "not yet"].forEach((text, i) =>
          say(lines[name][i], text),
        );
      }
    },
  };
}

export function questionsOf({ years, hours, min_amount, top }) {
  return facts([
    ["Years", years[0] === years[1] ? `${years[0]}` : `${years[0]} to ${years[1]}`],
    ["Hours", `${hours[0]} to ${hours[1]}, both included`],
    ["Large purchase", `${money(min_amount)} or more`],
    ["Customers per store", count(top)],
  ]);
}

/** Nothing disappears: rows that do not parse are shown with their place and reason. */
export function rejectedOf(id, signal) {
  const columns = [
    { title: "File", cell: ([table, file]) => file || table },
    { title: "Line", cell: ([, , line]) => count(line), isFigure: true },
    { title: "Reason", cell: ([, , , reason]) => reason },
    { title: "Row", cell: ([, , , , row]) => h("code", { class: "cut", title: row }, row) },
  ];
  const load = ({ offset, limit }) =>
    patiently(() => gateway.get(`/runs/${id}/rejected?offset=${offset}&limit=${limit}`, signal), signal);
  const table = pagedTable({
    caption: "Rows that were set aside",
    columns,
    load,
    limit: 10,
    empty: "They were counted, and never sent.",
  });
  const tell = h("p", { class: "soft" });
  const element = card(
    "Rejected rows",
    tell,
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
        tell,
        `${count(rejected)} rows do not parse. They count in no answer, and are kept with file, line and reason.`,
      );
      void table.show();
    },
  };
}
