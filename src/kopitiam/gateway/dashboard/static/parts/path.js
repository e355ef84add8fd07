// The path of the data, drawn as the stages that it passes, each with what it expects and what it has done.
import { h, keyed, say } from "../dom.js";
import { bytes, count, percent, plural } from "../format.js";
import { TABLES, figures, isOver } from "../progress.js";

const PLACES = [
  ["Client", []],
  ["Gateway", []],
  ["Landing", []],
  ["Filters", ["filter_year", "filter_hour", "filter_amount"]],
  ["Aggregators", ["agg_products", "agg_tpv", "agg_purchases"]],
  ["Barrier", []],
  ["Maximizers", ["max_products", "sum_tpv", "top_customers"]],
  ["Joiners", ["join_items", "join_stores_tpv", "join_stores_top", "join_users"]],
  ["Results", ["server_results"]],
];
const MOST_SHOWN = 32; // shards; beyond, only the sums

export function dataPath() {
  const places = PLACES.map(([name, stages]) => place(name, stages));
  const list = h(
    "ol",
    { class: "path", "aria-label": "The path of the data" },
    places.map(({ element }) => element),
  );
  const shards = h("tbody");
  const table = h(
    "table",
    {},
    h("caption", { class: "unseen" }, "Chunks by stage and shard"),
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
      const told = tell(status, upload);
      for (const { name, update } of places) update(status, told[name] ?? null);
      if (details.open) drawShards();
    },
  };
}

/** What stands below the places that are no stages: the figure, a word for it, and how it stands. */
function tell(status, upload) {
  const { chunks, durable, sealed } = figures(status);
  const isOpen = ["final", "done"].includes(status.state);
  const sending =
    upload && upload.total
      ? [percent(upload.done / upload.total), `${bytes(upload.done)} of ${bytes(upload.total)}`]
      : null;
  const client =
    sealed === TABLES.length
      ? ["sent", "all of it"]
      : (sending ?? [`${sealed} / ${TABLES.length}`, "tables ended"]);
  return {
    Client: { figure: client[0], words: client[1], isDone: sealed === TABLES.length },
    Gateway: {
      figure: count(chunks),
      words: `${chunks === 1 ? "chunk" : "chunks"} acknowledged`,
      isDone: sealed === TABLES.length,
    },
    Landing: {
      figure: count(durable),
      words: status.rejected ? `rows, ${count(status.rejected)} set aside` : "rows at rest",
      isDone: sealed === TABLES.length,
    },
    Barrier: {
      figure: isOpen ? "open" : "closed",
      words: isOpen ? "all shards have ended" : "until every shard has ended",
      isDone: isOpen,
    },
  };
}

function place(name, names) {
  const figure = h("b", { class: "big" });
  const words = h("span", { class: "soft" });
  const stages = names.map(stage);
  const content = names.length
    ? h(
        "ul",
        {},
        stages.map(({ element }) => element),
      )
    : h("p", {}, figure, words);
  const element = h(
    "li",
    { class: name === "Barrier" ? "place barrier" : "place" },
    h("h3", {}, name),
    content,
  );
  const update = (status, told) => {
    if (told) {
      say(figure, told.figure);
      say(words, told.words);
    }
    const isDone = stages
      .map(({ update: updateStage }) => updateStage(status.stages[updateStage.stage] ?? {}))
      .every(Boolean);
    element.classList.toggle("complete", told ? told.isDone : isDone);
  };
  return { name, element, update };
}

function stage(name) {
  const segments = h("span", { class: "segments", "aria-hidden": "true" });
  const figure = h("span", { class: "figure" });
  const element = h("li", {}, h("code", {}, name), segments, figure);
  const update = (byShard) => {
    const shards = Object.values(byShard);
    const sum = (key) => shards.reduce((whole, shard) => whole + (shard[key] ?? 0), 0);
    const isKnown = shards.length > 0 && shards.every((shard) => shard.expected !== null);
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
    element.title = `${name}: ${plural(sum("rows"), "row")} in ${plural(shards.length, "shard")}`;
    const isDone = isKnown && sum("processed") >= sum("expected");
    element.classList.toggle("complete", isDone);
    return isDone;
  };
  update.stage = name;
  return { element, update };
}

function segment(element, { expected, processed }) {
  element.classList.toggle("unknown", expected === null && processed > 0);
  element.style.setProperty("--share", expected === null ? 0 : expected ? processed / expected : 1);
}

function shardHeading() {
  const titles = ["Stage", "Shard", "Expected", "Processed", "Rows"];
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
  const cells = Array.from({ length: 3 }, () => h("td", { class: "figure" }));
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

function updateShardRow(element, { expected, processed, rows }) {
  const texts = [expected === null ? "not known yet" : count(expected), count(processed), count(rows)];
  texts.forEach((text, i) => say(element.figures[i], text));
}
