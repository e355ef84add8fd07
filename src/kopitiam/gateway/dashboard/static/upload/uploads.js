// The uploads of this tab, which continue while other pages are shown, and what is stored to resume them.
import { pause } from "../dom.js";
import { fleet, gateway, token } from "../session.js";

const KEY = "kopitiam.uploads";
const ALIVE_KEY = "kopitiam.sending."; // plus the run: when a tab last sent it
const ALIVE_SECONDS = 20;
const MOST_REMEMBERED = 20;
const PACE_SECONDS = 10;
const [LONGEST_BEAT, BEATS_PER_LEASE] = [15, 4];
const LONGEST_ROW_BYTES = 4 << 20; // as for the gateway; a longer row is never held in memory
const running = new Map(); // run → its upload
let beatSeconds = LONGEST_BEAT;

/** Bounds of a body; kept with the upload, because other bounds would be other cuts. */
export function boundsFor(about) {
  const longest = Math.min(LONGEST_ROW_BYTES, Math.floor(about.max_chunk_bytes * 0.9));
  return { bytes: longest, rows: Math.min(131_072, about.max_chunk_rows), longest };
}

export const uploadOf = (run) => running.get(run) ?? null;

/** `tables`: {name: [{file, path, plain}]}, in the order in which tables are sent; `data`: null, or {layout, keepsAll} for a
 *  run that sends to a data set. */
export function begin(run, label, tables, bounds, data = null) {
  running.get(run)?.stop();
  remember({ run, label, at: Date.now(), bounds, files: identity(tables), owner: owner(), data });
  showAlive(run);
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  const upload = {
    run,
    state: "sending",
    done: 0,
    total: 0,
    warning: null,
    error: null,
    seen: [],
    stop: () => end("stopped"),
  };
  running.set(run, upload);

  function end(state, error = null) {
    worker.terminate();
    localStorage.removeItem(ALIVE_KEY + run);
    Object.assign(upload, { state, error, warning: null });
    report(run);
  }

  worker.addEventListener("message", ({ data }) => {
    if (data.kind === "alive") return showAlive(run);
    if (data.kind === "progress") progress(upload, data.figures);
    else if (data.kind === "warning") upload.warning = data.text;
    else if (data.kind === "done") end("sent");
    else end("failed", data.text);
    report(run);
  });
  worker.addEventListener("error", () => end("failed", "the upload could not be started"));
  const files = Object.fromEntries(
    Object.entries(tables).map(([table, own]) => [table, own.map(({ file, plain }) => ({ file, plain }))]),
  );
  worker.postMessage({
    run,
    tables: files,
    data,
    bounds,
    beatSeconds,
    token: token(),
    origins: fleet.origins,
    current: fleet.current,
  });
  return upload;
}

function progress(upload, figures) {
  const now = Date.now() / 1000;
  Object.assign(upload, figures);
  upload.seen = [...upload.seen.filter((seen) => now - seen.now < PACE_SECONDS), { now, done: figures.done }];
}

/** Returns bytes per second and seconds left; null while unknown. */
export function pace({ seen, done, total }) {
  const [first, last] = [seen[0], seen.at(-1)];
  if (!first || last.now - first.now < 0.5) return null;
  const rate = (last.done - first.done) / (last.now - first.now);
  return rate > 0 ? { rate, left: (total - done) / rate } : null;
}

let telling = null;
async function report(run) {
  if (telling) return;
  telling = pause(0.1);
  await telling;
  telling = null;
  document.dispatchEvent(new CustomEvent("upload", { detail: run }));
}

const isSending = ({ state }) => state === "sending";

addEventListener("beforeunload", (event) => {
  if ([...running.values()].some(isSending)) event.preventDefault();
});

addEventListener("pagehide", () => {
  for (const { run } of [...running.values()].filter(isSending)) localStorage.removeItem(ALIVE_KEY + run);
});

// -- stored for the next time that the same files are dropped

/** Returns a short digest that separates uploads of different tokens without revealing them. */
function owner() {
  const letters = [...(token() ?? "")];
  return letters.reduce((sum, letter) => (Math.imul(sum, 31) + letter.codePointAt(0)) & 0xffff, 0);
}

/** Reports to other tabs that this upload is not interrupted. */
function showAlive(run) {
  localStorage.setItem(ALIVE_KEY + run, Date.now());
}

const isAlive = (run) => Date.now() - Number(localStorage.getItem(ALIVE_KEY + run)) < ALIVE_SECONDS * 1000;

/** Whether the upload began in this browser and no tab sends it. */
export const isInterrupted = (run) => remembered().some((upload) => upload.run === run) && !isAlive(run);

/** Files are the same if table, name, size and time are. */
function identity(tables) {
  return Object.entries(tables).flatMap(([table, own]) =>
    own.map(({ file }) => [table, file.name, file.size, file.lastModified]),
  );
}

const kept = () => JSON.parse(localStorage.getItem(KEY) ?? "[]");
const keep = (uploads) => localStorage.setItem(KEY, JSON.stringify(uploads.slice(0, MOST_REMEMBERED)));
const remembered = () => kept().filter((upload) => upload.owner === owner());
const remove = (run) => keep(kept().filter((upload) => upload.run !== run));
const remember = (upload) => keep([upload, ...kept().filter(({ run }) => run !== upload.run)]);

/** Returns interrupted uploads; if files are given, only those whose files are all among them. */
export async function interrupted(tables = null) {
  const there = tables && new Set(identity(tables).map((file) => JSON.stringify(file)));
  const isThere = (file) => there.has(JSON.stringify(file));
  const found = remembered().filter((upload) => !there || upload.files.every(isThere));
  return (await stillOpen(found)).filter(({ run }) => isInterrupted(run));
}

/** The tables that an upload sends, in its order. */
export const tablesSent = ({ files }) => [...new Set(files.map(([table]) => table))];

/** Returns the uploads that are still open at the gateway. The calls renew their leases meanwhile. */
async function stillOpen(uploads) {
  const open = [];
  for (const upload of uploads) {
    const status = await gateway
      .get(`/runs/${upload.run}`)
      .catch((error) => (error.status === 404 ? null : { state: "open" }));
    if (status?.state === "open") open.push(upload);
    else remove(upload.run);
  }
  return open;
}

/** Whichever page is shown. */
export function keepLeases(leaseSeconds) {
  beatSeconds = Math.min(LONGEST_BEAT, leaseSeconds / BEATS_PER_LEASE);
  setInterval(() => void stillOpen(remembered()), beatSeconds * 1000);
}
