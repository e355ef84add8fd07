// The path of the data, drawn as the stages that it passes, each with what it expects and what it has done. Which
// stages there are depends on the questions: the gateway lists them, with the role of each.
import { h, keyed, say } from "../dom.js";
import { bytes, count, percent, plural } from "../format.js";
import { figures, isOver } from "../progress.js";

const PLACES = [
  ["Client", null],
  ["Gateway", null],
  ["Landing", null],
  ["Filters", ["check", "filter"]],
  ["Aggregators", ["aggregate"]],
  ["Barrier", null],
  ["Maximizers", ["rank"]],
  ["Joiners", ["join"]],
  ["Results", ["publish"]],
];
const MOST_SHOWN = 32; // shards; beyond, only the sums

export function dataPath() {
  const places = PLACES.map(([name, roles]) => place(name, roles));
  const list = h(
    "ol",
    { class: "path", "aria-label": "The path of the data" },
    places.map(({ element }) => element),
  );
  const shards = h("tbody");
  const table = h(
    "table",
    {},
    h("caption", { class: "unseen" }, "Chunks and rows by stage and shard"),
    shardHeading(),
    shards,
  );
  const details = h(
    "details",
    { ontoggle: () => details.open && drawShards() },
    h("summary", {}, "Every stage, shard by shard"),
    h("div", { class: "scroll" }, table),
  );
  let seen = null;

  function drawShards() {
    const rows = Object.entries(seen?.stages ?? {}).flatMap(([stage, byShard]) =>
      Object.entries(byShard).map(([shard, work]) => ({ stage, shard, ...work })),
    );
    keyed(shards, rows, ({ stage, shard }) => `${stage}/${shard}`, shardRow, updateShardRow);
  }

  return {
    element: h("div", {}, list, details),
    update(status, upload) {
      seen = status;
      list.classList.toggle("flows", !isOver(status) && status.state !== "final");
      list.dataset.state = status.state;
      const summary = summarize(status, upload);
      for (const { name, update } of places) update(status, summary[name] ?? null);
      if (details.open) drawShards();
    },
  };
}

/** Returns figure, caption and state of the places that are not stages. */
function summarize(status, upload) {
  const { chunks, durable, isSealed, sealed, tables } = figures(status);
  const isOpen = ["final", "done"].includes(status.state);
  const sending =
    upload && upload.total
      ? [percent(upload.done / upload.total), `${bytes(upload.done)} of ${bytes(upload.total)}`]
      : null;
  const client = isSealed ? ["sent", "all of it"] : (sending ?? [`${sealed} / ${tables}`, "tables ended"]);
  return {
    Client: { figure: client[0], words: client[1], isDone: isSealed },
    Gateway: {
      figure: count(chunks),
      words: `${chunks === 1 ? "chunk" : "chunks"} acknowledged`,
      isDone: isSealed,
    },
    Landing: {
      figure: count(durable),
      words: status.rejected ? `rows, ${count(status.rejected)} rejected` : "rows at rest",
      isDone: isSealed,
    },
    Barrier: {
      figure: isOpen ? "open" : "closed",
      words: isOpen ? "all shards have ended" : "until every shard has ended",
      isDone: isOpen,
    },
  };
}

function place(name, roles) {
  const figure = h("b", { class: "big" });
  const words = h("span", { class: "soft" });
  const stages = h("ul");
  const none = h("p", { class: "soft" }, "none needed");
  const element = h(
    "li",
    { class: name === "Barrier" ? "place barrier" : "place" },
    h("h3", {}, name),
    roles ? [stages, none] : h("p", {}, figure, words),
  );
  const update = (status, summary) => {
    if (summary) {
      say(figure, summary.figure);
      say(words, summary.words);
      return void element.classList.toggle("complete", summary.isDone);
    }
    const own = Object.entries(status.stages).filter(([, shards]) => roles.includes(Object.values(shards)[0]?.role));
    const done = [];
    keyed(
      stages,
      own,
      ([stage]) => stage,
      ([stage]) => stageOf(stage),
      (item, [, shards]) => done.push(item.show(Object.values(shards))),
    );
    none.hidden = own.length > 0;
    element.classList.toggle("complete", done.every(Boolean));
  };
  return { name, element, update };
}

function stageOf(name) {
  const segments = h("span", { class: "segments", "aria-hidden": "true" });
  const figure = h("span", { class: "figure" });
  const flow = h("span", { class: "flow soft" });
  const element = h("li", {}, h("code", {}, name), segments, figure, flow);
  element.show = (shards) => {
    const sum = (key) => shards.reduce((whole, shard) => whole + (shard[key] ?? 0), 0);
    const isKnown = shards.every((shard) => shard.expected !== null);
    const shown =
      shards.length > MOST_SHOWN
        ? [{ expected: isKnown ? sum("expected") : null, processed: sum("processed") }]
        : shards;
    keyed(
      segments,
      shown.map((shard, i) => ({ ...shard, i })),
      ({ i }) => i,
      () => h("i"),
      segment,
    );
    say(figure, `${count(sum("processed"))} / ${isKnown ? count(sum("expected")) : "?"}`);
    const [rows, rowsOut] = [sum("rows"), sum("rows_out")];
    say(flow, rows ? `${count(rowsOut)} of ${count(rows)} went on` : "");
    element.title = `${name}: ${plural(rows, "row")} came in, ${count(rowsOut)} went on, in ${plural(shards.length, "shard")}`;
    const isDone = isKnown && sum("processed") >= sum("expected");
    element.classList.toggle("complete", isDone);
    return isDone;
  };
  return element;
}

function segment(element, { expected, processed }) {
  element.classList.toggle("unknown", expected === null && processed > 0);
  element.style.setProperty("--share", expected === null ? 0 : expected ? processed / expected : 1);
}

function shardHeading() {
  const titles = ["Stage", "Shard", "Expected", "Processed", "Rows in", "Rows out"];
  return h(
    "thead",
    {},
    h(
      "tr",
      {},
      titles.map((title, i) => h("th", { scope: "col", class: i ? "figure" : null }, title)),
    ),
  );
}

function shardRow({ stage: name, shard }) {
  const cells = Array.from({ length: 4 }, () => h("td", { class: "figure" }));
  const element = h(
    "tr",
    {},
    h("th", { scope: "row" }, h("code", {}, name)),
    h("td", { class: "figure" }, shard),
    ...cells,
  );
  element.figures = cells;
  return element;
}

function updateShardRow(element, { expected, processed, rows, rows_out: rowsOut }) {
  const known = expected === null ? "not known yet" : count(expected);
  [known, count(processed), count(rows), count(rowsOut)].forEach((text, i) => say(element.figures[i], text));
}
