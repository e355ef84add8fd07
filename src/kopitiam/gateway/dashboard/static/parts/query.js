// A query over a data set: runs it, and shows its rows with the files to download.
import { announce, fill, h } from "../dom.js";
import { count, plural } from "../format.js";
import { gateway, patiently, welcome } from "../session.js";
import { EMPTY, nameOf } from "./cells.js";
import { download } from "./downloads.js";
import { pagedTable } from "./table.js";

const WAIT_SECONDS = 20; // of one call for the result
const FORMS = { csv: "CSV", json: "JSON", parquet: "Parquet", xlsx: "Excel" };
const FIGURES = ["integer", "decimal", "float"];

/** Shows the result of one query after the other over this data set; the last one counts. */
export function queryView({ name, owner, signal }) {
  const element = h("div", { class: "query rows" }, h("p", { class: "soft" }, "Nothing was run yet."));
  const path = `/data/${name}/sql`;
  const suffix = owner ? `?${new URLSearchParams({ owner })}` : "";
  let running = 0;

  async function run(sql, version) {
    const mine = ++running;
    const isOutdated = () => signal.aborted || mine !== running;
    element.setAttribute("aria-busy", "true");
    fill(element, h("p", { class: "soft", role: "status" }, "The query is sent…"));
    try {
      const body = { sql, version };
      const sent = await welcome(() => gateway.json("POST", path + suffix, { body, signal }), signal);
      const stop = () => patiently(() => gateway.json("DELETE", `${path}/${sent.query}${suffix}`, { signal }), signal);
      if (!isOutdated()) fill(element, underWay(stop));
      const query = await result(sent, isOutdated);
      if (isOutdated()) return void stop().catch(() => {});
      fill(element, query.state === "done" ? resultOf(query) : flawOf(query.error));
      announce(query.state === "done" ? sentence(query) : query.error);
    } catch (error) {
      if (!isOutdated()) fill(element, flawOf(error.status === 404 ? "The query was cancelled, or the data set is gone." : error.message));
    } finally {
      if (!isOutdated()) element.removeAttribute("aria-busy");
    }
  }

  async function result(sent, isOutdated) {
    let query = sent;
    const place = `${path}/${sent.query}?${new URLSearchParams({ wait: WAIT_SECONDS, ...(owner && { owner }) })}`;
    while (!isOutdated() && !["done", "failed"].includes(query.state))
      query = await patiently(() => gateway.get(place, signal), signal);
    return query;
  }

  function resultOf(query) {
    const { columns, cut } = query;
    const place = `${path}/${query.query}`;
    const table = pagedTable({
      caption: "Rows of the query",
      columns: columns.map((column, at) => ({
        title: column.name,
        isFigure: FIGURES.includes(column.kind),
        cell: (row) => cell(column, row[at]),
      })),
      load: ({ offset, limit, search }) => {
        const page = new URLSearchParams({ offset, limit, search, ...(owner && { owner }) });
        return patiently(() => gateway.get(`${place}/rows?${page}`, signal), signal);
      },
      searchLabel: "Search these rows",
    });
    void table.show();
    const file = ([form, label]) => download(label, `${place}.${form}${suffix}`, `${name}-sql.${form}`);
    return [
      h("p", { class: "soft" }, sentence(query), cut ? " There are more: add conditions, or group them." : null),
      table.element,
      h("p", { class: "buttons" }, Object.entries(FORMS).map(file)),
    ];
  }

  return { element, run };
}

const underWay = (stop) => [
  h("p", { class: "soft", role: "status" }, "The query is running…"),
  h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => void stop().catch(() => {}) }, "Cancel")),
];

const flawOf = (text) => h("p", { class: "flaw", role: "alert" }, h("bdi", {}, text));

const sentence = ({ rows, cut, seconds, version }) =>
  `${cut ? `The first ${plural(rows, "row")}` : plural(rows, "row")} of version ${count(version)}, in ${seconds.toFixed(1)} s.`;

function cell({ kind }, text) {
  if (text === "") return h("span", { class: "soft" }, EMPTY);
  return kind === "text" ? nameOf(text) : text;
}
