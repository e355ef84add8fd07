// Each question: its chart, its table, and its files to take away.
import { fill, h, say } from "../dom.js";
import { aligned, count, money, month } from "../format.js";
import { gateway, patiently } from "../session.js";
import { draw, forget } from "./charts.js";
import { download } from "./downloads.js";
import { pagedTable, plainTable } from "./table.js";

const FORMS = ["csv", "json", "parquet"];
const MOST_PLAIN = 1000;

/** An article with its chart, its files, and a table that is filled by `tables`. */
function article({ id, heading, told, chart, answer, tables }, { run, signal }) {
  const drawing = h("div", { class: "chart", id: `chart-${id}` });
  const partly = h("p", { class: "soft" });
  const files = h("div", { class: "buttons" });
  const place = h("div", { class: "rows" });
  const element = h(
    "article",
    { class: "card", id, "aria-labelledby": `${id}-heading` },
    h(
      "header",
      {},
      h("div", {}, h("h3", { id: `${id}-heading` }, heading), h("p", { class: "soft" }, told)),
      files,
    ),
    h("div", { class: "drawing" }, drawing),
    partly,
    place,
  );
  signal.addEventListener("abort", () => forget(drawing), { once: true });
  let isProvisional = false;
  const load = ({ offset, limit, search }) => {
    const query = new URLSearchParams({ offset, limit, search, provisional: isProvisional });
    return patiently(() => gateway.get(`/runs/${run}/results/${answer}/rows?${query}`, signal), signal).then(
      withNames,
    );
  };
  const table = tables(load, place);
  return {
    element,
    offer(provisional) {
      isProvisional = provisional;
      const query = provisional ? "?provisional=true" : "";
      fill(
        files,
        FORMS.map((form) =>
          download(
            form.toUpperCase(),
            `/runs/${run}/results/${answer}.${form}${query}`,
            `results_query_${answer}.${form}`,
          ),
        ),
      );
    },
    async show({ charts, summary }) {
      const [shown, whole] = [drawnOf(charts[chart]), summary.answers[answer]];
      say(partly, shown < whole ? `The chart shows ${count(shown)} of ${count(whole)} rows.` : "");
      await Promise.all([draw(drawing, chart, charts[chart]), table()]);
    },
  };
}

/** A bar of the first question stands for many rows, any other for one. */
const drawnOf = (rows) => rows.reduce((whole, row) => whole + ("amounts" in row ? row.purchases : 1), 0);

function withNames({ columns, rows, matched, total }) {
  const named = (row) => Object.fromEntries(columns.map((column, i) => [column, row[i]]));
  return { rows: rows.map(named), matched, total };
}

/** A table of one page where it fits, leafed through where it does not. */
function small(caption, columns, plain) {
  return (load, place) => {
    const paged = pagedTable({ caption, columns, load });
    let seen = null;
    return async () => {
      const { rows, total } = await load({ offset: 0, limit: MOST_PLAIN, search: "" });
      if (total <= MOST_PLAIN) {
        if (seen === JSON.stringify(rows)) return; // whoever has scrolled stays where they are
        seen = JSON.stringify(rows);
        return void fill(place, rows.length ? plain(rows) : h("p", { class: "soft" }, "No rows."));
      }
      if (!paged.element.isConnected) fill(place, paged.element);
      await paged.show();
    };
  };
}

const known = (name, isMatched) =>
  isMatched === "true" ? name : h("span", {}, name, h("em", { class: "soft" }, " not in its table"));

function largePurchases({ years, hours, min_amount }, context) {
  const columns = [
    { title: "Transaction", cell: (row) => h("code", {}, row.transaction_id) },
    { title: "Amount", cell: (row) => money(row.final_amount), isFigure: true },
  ];
  const told = `${spanned(years)}, from ${hours[0]} to ${hours[1]}, ${money(min_amount)} or more`;
  const tables = (load, place) => {
    const paged = pagedTable({
      caption: "Large purchases",
      columns,
      load,
      searchLabel: "Search transactions or amounts",
    });
    fill(place, paged.element);
    return paged.show;
  };
  return article(
    { id: "q1", heading: "Large purchases in opening hours", told, chart: "q1", answer: "1", tables },
    context,
  );
}

function product(id, answer, chart, heading, figure, title, shown) {
  return ({ years }, context) => {
    const columns = [
      { title: "Month", cell: (row) => month(row.year_month_created_at) },
      { title: "Product", cell: (row) => known(row.item_name, row.item_is_matched) },
      { title, cell: (row) => shown([row[figure]])[0], isFigure: true },
    ];
    const plain = (rows) => {
      const figures = shown(rows.map((row) => row[figure]));
      const cells = rows.map((row, i) => [
        month(row.year_month_created_at),
        known(row.item_name, row.item_is_matched),
        figures[i],
      ]);
      return plainTable(heading, columns, cells);
    };
    return article(
      { id, heading, told: spanned(years), chart, answer, tables: small(heading, columns, plain) },
      context,
    );
  };
}

function paymentValue({ years, hours }, context) {
  const heading = "Total payment value per store and half-year";
  const columns = [
    { title: "Half-year", cell: (row) => row.year_half_created_at },
    { title: "Store", cell: (row) => known(row.store_name, row.store_is_matched) },
    { title: "TPV", cell: (row) => money(row.tpv), isFigure: true },
  ];
  const plain = (rows) => {
    const halves = [...new Set(rows.map((row) => row.year_half_created_at))].sort();
    const stores = new Map(rows.map((row) => [row.store_id, row]));
    const amounts = new Map(
      rows.map((row) => [`${row.store_id} ${row.year_half_created_at}`, money(row.tpv)]),
    );
    const columnOf = (half) =>
      aligned([...stores.keys()].map((store) => amounts.get(`${store} ${half}`) ?? "."));
    const figures = halves.map(columnOf);
    const cells = [...stores.values()].map((row, i) => [
      known(row.store_name, row.store_is_matched),
      ...figures.map((column) => column[i].replace(/^\./, "–")),
    ]);
    return plainTable(
      heading,
      [{ title: "Store" }, ...halves.map((half) => ({ title: half, isFigure: true }))],
      cells,
    );
  };
  const told = `${spanned(years)}, from ${hours[0]} to ${hours[1]}`;
  return article(
    { id: "q3", heading, told, chart: "q3", answer: "3", tables: small(heading, columns, plain) },
    context,
  );
}

function topCustomers({ years, top }, context) {
  const heading = "Customers with most purchases per store";
  const columns = [
    { title: "Store", cell: (row) => known(row.store_name, row.store_is_matched) },
    { title: "Rank", cell: (row) => row.rank, isFigure: true },
    { title: "Birthdate", cell: (row) => row.birthdate || "unknown" },
    { title: "Customer", cell: (row) => row.user_id, isFigure: true },
    { title: "Purchases", cell: (row) => count(row.purchases), isFigure: true },
  ];
  const plain = (rows) => {
    const ranked = rows.toSorted((a, b) =>
      a.store_name < b.store_name
        ? -1
        : a.store_name > b.store_name
          ? 1
          : a.store_id - b.store_id || a.rank - b.rank,
    );
    return plainTable(
      heading,
      columns,
      ranked.map((row) => columns.map(({ cell }) => cell(row))),
    );
  };
  const told = `${spanned(years)}, at any hour, the ${count(top)} best of each store`;
  return article(
    { id: "q4", heading, told, chart: "q4", answer: "4", tables: small(heading, columns, plain) },
    context,
  );
}

const spanned = ([first, last]) => (first === last ? `${first}` : `${first} to ${last}`);
export const QUESTIONS = [
  largePurchases,
  product("q2-best", "2_1", "q2_best", "Best-selling product per month", "sellings_qty", "Sold", (texts) =>
    texts.map((text) => count(text)),
  ),
  product(
    "q2-profit",
    "2_2",
    "q2_profit",
    "Most profitable product per month",
    "profit_sum",
    "Profit",
    (texts) => aligned(texts.map(money)),
  ),
  paymentValue,
  topCustomers,
];
