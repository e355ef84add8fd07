// How far a run is, in one figure and in words, and how fast it gets on.
import { count, duration } from "./format.js";

export const TABLES = ["stores", "menu_items", "users", "transactions", "transaction_items"];
export const OVER = ["done", "failed", "ended"];
// A stage that one table feeds, and no other.
const STAGE_OF_TABLE = {
  stores: "join_stores_top",
  menu_items: "join_items",
  users: "join_users",
  transactions: "agg_purchases",
  transaction_items: "agg_products",
};
export const STATES = {
  open: "Uploading",
  sealed: "Processing",
  final: "Answering",
  done: "Done",
  failed: "Failed",
  ended: "Ended",
};

export const isOver = (status) => OVER.includes(status.state);

export function figures(status) {
  const tables = TABLES.map((table) => status.tables[table]);
  const sum = (numbers) => numbers.reduce((whole, part) => whole + part, 0);
  const shards = TABLES.flatMap((table) => Object.values(status.stages[STAGE_OF_TABLE[table]] ?? {}));
  return {
    durable: sum(tables.map((table) => table.rows)),
    chunks: sum(tables.map((table) => table.chunks)),
    expected: tables.every((table) => table.sealed) ? sum(tables.map((table) => table.expected_rows)) : null,
    sealed: tables.filter((table) => table.sealed).length,
    processed: sum(shards.map((shard) => shard.rows)),
  };
}

/** From 0 to 1; null while nobody but the client knows how much is to come. */
export function share(status) {
  const { expected, processed } = figures(status);
  if (status.state === "done") return 1;
  if (expected === null) return null;
  return expected ? Math.min(processed / expected, 1) : 1;
}

/** Rows a second over the last few looks at a run, and since it began where there was but one. */
export class Pace {
  #seen = [];

  look(status, now) {
    const { durable, processed } = figures(status);
    const rows = status.state === "open" ? durable : processed;
    const last = this.#seen.at(-1);
    if (last && (last.state !== status.state || last.rows > rows)) this.#seen = [];
    this.#seen.push({ now, rows, state: status.state });
    this.#seen = this.#seen.filter((seen) => now - seen.now <= 15);
    return this;
  }

  rate(status, now) {
    const first = this.#seen[0];
    const last = this.#seen.at(-1);
    if (last && last.now - first.now >= 1) return (last.rows - first.rows) / (last.now - first.now);
    const { durable, processed } = figures(status);
    const elapsed = (status.finished_at ?? now) - status.created_at;
    return elapsed > 0 ? (status.state === "open" ? durable : processed) / elapsed : 0;
  }
}

/** Seconds until all that is expected has been processed; null if nobody can tell. */
export function timeLeft(status, rate) {
  const { expected, processed } = figures(status);
  if (isOver(status) || expected === null || rate <= 0) return null;
  return (expected - processed) / rate;
}

export function words(status) {
  const { durable, expected, processed, sealed } = figures(status);
  switch (status.state) {
    case "open":
      return `${count(durable)} rows have come, ${sealed} of ${TABLES.length} tables complete`;
    case "sealed":
      return `${count(processed)} of ${count(expected)} rows processed`;
    case "final":
      return "all rows processed, answers are being written";
    case "done":
      return `answered in ${duration(status.finished_at - status.created_at)}`;
    case "failed":
      return status.error ?? "failed";
    default:
      return status.error === "cancelled" ? "ended by hand" : (status.error ?? "ended");
  }
}
