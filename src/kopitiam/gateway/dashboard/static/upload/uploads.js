// The uploads of this tab, which go on while other pages are shown, and what is needed to take one up again.
import { pause } from "../dom.js";
import { gateway, token } from "../session.js";

const KEY = "kopitiam.uploads";
const MOST_REMEMBERED = 20;
const PACE_SECONDS = 10;
const BEAT_SECONDS = 15;
const running = new Map(); // run → what is known of its upload

/** Bounds of a body; kept with the upload, because other bounds would be other cuts. */
export function boundsFor(about) {
  const longest = Math.floor(about.max_chunk_bytes * 0.9);
  return { bytes: Math.min(4 << 20, longest), rows: Math.min(131_072, about.max_chunk_rows), longest };
}

export const uploadOf = (run) => running.get(run) ?? null;

/** `tables`: {name: [{file, path}]}, in the order in which tables are sent. */
export function begin(run, label, tables, bounds) {
  remember({ run, label, at: Date.now(), bounds, files: identity(tables) });
  const worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
  const upload = {
    run,
    state: "sending",
    done: 0,
    total: 0,
    trouble: null,
    error: null,
    seen: [],
    stop: () => end("stopped"),
  };
  running.set(run, upload);

  function end(state, error = null) {
    worker.terminate();
    Object.assign(upload, { state, error, trouble: null });
    tell(run);
  }

  worker.addEventListener("message", ({ data }) => {
    if (data.kind === "progress") progress(upload, data.figures);
    else if (data.kind === "trouble") upload.trouble = data.text;
    else if (data.kind === "done") end("sent");
    else end("failed", data.text);
    tell(run);
  });
  worker.addEventListener("error", () => end("failed", "the upload could not be started"));
  const files = Object.fromEntries(
    Object.entries(tables).map(([table, own]) => [table, own.map(({ file }) => file)]),
  );
  worker.postMessage({ run, tables: files, bounds, token: token() });
  return upload;
}

function progress(upload, figures) {
  const now = Date.now() / 1000;
  Object.assign(upload, figures);
  upload.seen = [...upload.seen.filter((seen) => now - seen.now < PACE_SECONDS), { now, done: figures.done }];
}

/** Bytes a second, and seconds that are left; null while nobody can tell. */
export function pace({ seen, done, total }) {
  const [first, last] = [seen[0], seen.at(-1)];
  if (!first || last.now - first.now < 0.5) return null;
  const rate = (last.done - first.done) / (last.now - first.now);
  return rate > 0 ? { rate, left: (total - done) / rate } : null;
}

let telling = null;
async function tell(run) {
  if (telling) return;
  telling = pause(0.1);
  await telling;
  telling = null;
  document.dispatchEvent(new CustomEvent("upload", { detail: run }));
}

addEventListener("beforeunload", (event) => {
  if ([...running.values()].some(({ state }) => state === "sending")) event.preventDefault();
});

// -- what is kept for the next time that the same files are dropped

/** Files are the same if table, name, size and time are. */
function identity(tables) {
  return Object.entries(tables).flatMap(([table, own]) =>
    own.map(({ file }) => [table, file.name, file.size, file.lastModified]),
  );
}

export const remembered = () => JSON.parse(localStorage.getItem(KEY) ?? "[]");

export function forget(run) {
  localStorage.setItem(KEY, JSON.stringify(remembered().filter((upload) => upload.run !== run)));
}

function remember(upload) {
  const others = remembered().filter(({ run }) => run !== upload.run);
  localStorage.setItem(KEY, JSON.stringify([upload, ...others].slice(0, MOST_REMEMBERED)));
}

export function begunBefore(tables) {
  const files = JSON.stringify(identity(tables));
  return remembered().filter((upload) => JSON.stringify(upload.files) === files);
}

/** Those that the gateway still waits for. Asking keeps their leases, while the person looks for the folder. */
export async function stillOpen(uploads = remembered()) {
  const open = [];
  for (const upload of uploads) {
    const status = await gateway
      .get(`/runs/${upload.run}`)
      .catch((error) => (error.status === 404 ? null : { state: "open" }));
    if (status?.state === "open") open.push(upload);
    else forget(upload.run);
  }
  return open;
}

setInterval(() => void stillOpen(), BEAT_SECONDS * 1000);
