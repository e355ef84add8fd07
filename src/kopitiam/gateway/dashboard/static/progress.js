// The progress of a run, as a share and in words, and its speed.
import { count, duration } from "./format.js";

export const OVER = ["done", "failed", "ended"];
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
  const tables = Object.values(status.tables);
  const sum = (numbers) => numbers.reduce((whole, part) => whole + part, 0);
  const isSealed = tables.every((table) => table.sealed);
  return {
    durable: sum(tables.map((table) => table.rows)),
    chunks: sum(tables.map((table) => table.chunks)),
    expected: isSealed ? sum(tables.map((table) => table.expected_chunks)) : null, // chunks
    tables: tables.length,
    sealed: tables.filter((table) => table.sealed).length,
    isSealed,
    processed: sum(tables.map((table) => table.processed)), // chunks
    rowsDone: sum(tables.map(({ rows, chunks, processed }) => (chunks ? (rows * processed) / chunks : 0))), // about
  };
}

/** Returns 0 to 1; null while only the client knows how much is to come. */
export function share(status) {
  const { expected, processed } = figures(status);
  if (status.state === "done") return 1;
  if (expected === null) return null;
  return expected ? Math.min(processed / expected, 1) : 1;
}

/** Rows per second over the last few polls, or since the start after a single poll. */
export class Pace {
  #seen = [];

  look(status, now) {
    const { durable, rowsDone } = figures(status);
    const rows = status.state === "open" ? durable : rowsDone;
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
    const { durable, rowsDone } = figures(status);
    const elapsed = (status.finished_at ?? now) - status.created_at;
    return elapsed > 0 ? (status.state === "open" ? durable : rowsDone) / elapsed : 0;
  }
}

/** Returns the seconds until all expected rows are processed; null if unknown. */
export function timeLeft(status, rate) {
  const { durable, isSealed, rowsDone } = figures(status);
  if (isOver(status) || !isSealed || rate <= 0) return null;
  return (durable - rowsDone) / rate;
}

export function words(status) {
  const { durable, expected, processed, sealed, tables } = figures(status);
  switch (status.state) {
    case "open":
      return `${count(durable)} rows received, ${sealed} of ${tables} tables complete`;
    case "sealed":
      return `${count(processed)} of ${count(expected)} chunks processed, ${count(durable)} rows in all`;
    case "final":
      return "all rows processed, answers are being written";
    case "done":
      return `answered in ${duration(status.finished_at - status.created_at)}`;
    case "failed":
      return status.error ?? "failed";
    default:
      return status.error === "cancelled" ? "cancelled" : (status.error ?? "ended");
  }
}
