// One upload in a worker: reads and cuts files, sends a few bodies at once, and sends END. It is independent of the page,
// and a tab in the background does not slow it down.
import { Fleet, Gateway, Refused } from "../gateway.js";
import { cuts, headerOf, separatorOf } from "./cut.js";
import { differing } from "./differing.js";

const AT_ONCE = 4;
const NAMED_AT_ONCE = 100; // files
const SEAL_ATTEMPTS = 100; // each lost to a version that another client has made
const ROUNDS = 3; // of sending chunks that END reports as missing
const BODY_SECONDS = 600; // a few of them at once, over a slow line
const ALIVE_SECONDS = 2;
const [FIRST_PAUSE, LONGEST_PAUSE] = [0.2, 5];

class Changed extends Error {}

/**
 * @param tables  {name: [{file, plain}]}
 * @param data    of a run that sends to a data set: {layout, keepsAll}; null for other runs
 */
class Upload {
  constructor({ run, tables, data, bounds, beatSeconds, token, origins, current }) {
    Object.assign(this, { run, tables, data, bounds, beatSeconds, place: `/runs/${run}`, failed: 0 });
    const fleet = new Fleet(origins);
    fleet.use(current);
    this.gateway = new Gateway(() => token, { fleet });
    this.figures = {
      done: 0,
      total: sizeOf(Object.values(tables).flat()),
      rows: 0,
      rejected: 0,
      chunks: 0,
      resumed: 0,
      table: null,
      isReading: false,
    };
  }

  async send() {
    const beating = setInterval(() => this.gateway.get(this.place).catch(() => {}), this.beatSeconds * 1000);
    const living = setInterval(() => postMessage({ kind: "alive" }), ALIVE_SECONDS * 1000);
    try {
      const status = await this.ask(() => this.gateway.get(this.place));
      const { state, error } = status;
      if (["failed", "ended"].includes(state)) throw new Error(`the run is over: ${error ?? state}`);
      if (this.data) await this.sendToDataSet(status);
      else await this.sendParts(tableParts(this.tables, status));
    } finally {
      clearInterval(beating);
      clearInterval(living);
    }
  }

  /** Sends the files that differ from the version that the run saw, and makes the next version. */
  async sendToDataSet({ state, data: { name, seen }, tables }) {
    if (state !== "open") return;
    const version = `/data/${name}?version=${seen}`;
    const held = seen ? (await this.ask(() => this.gateway.get(version))).files : [];
    this.report({ isReading: true });
    const options = { ...this.data, held, needed: tables, onBytes: (done) => this.report({ done }) };
    const files = await differing(this.tables, options);
    const unchanged = Object.values(this.tables).flat().length - files.length;
    this.report({ isReading: false, done: 0, total: sizeOf(files), unchanged });
    await this.sendParts((await this.name(files)).filter(({ isHeld }) => !isHeld));
    await this.sealVersion(seen);
  }

  /** Returns a part for each file, with the place that the gateway gave it. */
  async name(files) {
    const parts = [];
    for (let at = 0; at < files.length; at += NAMED_AT_ONCE) {
      const some = files.slice(at, at + NAMED_AT_ONCE);
      const body = { files: some.map(({ view }) => view) };
      const named = await this.ask(() => this.gateway.json("POST", `${this.place}/files`, { body }));
      parts.push(...named.files.map((status, i) => filePart(some[i], status)));
    }
    return parts;
  }

  async sealVersion(seen) {
    for (let attempt = 0, version = seen; attempt < SEAL_ATTEMPTS; attempt += 1) {
      try {
        await this.ask(() => this.gateway.json("POST", `${this.place}/seal`, { body: { version } }));
        return;
      } catch (error) {
        if (!(error instanceof Refused && error.word === "version")) throw error;
        version = error.body.newest; // another client has made it: this one is built on top of it
      }
    }
    throw new Error("other clients make versions faster than this one can be made");
  }

  async sendParts(parts) {
    for (const part of parts) {
      if (part.isEnded) this.report({ done: this.figures.done + sizeOf(part.files) });
      else await this.sendPart(part);
    }
  }

  async sendPart(part) {
    this.report({ table: part.name });
    const before = this.figures.done;
    for (let round = 0; round < ROUNDS; round += 1) {
      this.report({ done: before });
      const end = await this.sendRows(part);
      this.report({ done: before + sizeOf(part.files) });
      if (await this.seal(part, end)) return;
    }
    throw new Error(`${part.name} is still not complete after ${ROUNDS} rounds`);
  }

  /** Sends chunks that are not durable yet; durable ones must have the same bytes. */
  async sendRows(part) {
    const { chunks } = await this.ask(() => this.gateway.get(`${this.place}/${part.place}/chunks`));
    const durable = new Map(chunks.map((chunk) => [chunk.number, chunk]));
    const end = { chunks: 0, rows: 0 };
    const underWay = new Set();
    const failed = [];
    for (const { file } of part.files) {
      const separator = await separatorOf(file, part.columns);
      const header = await headerOf(file, separator);
      let taken = 0;
      for await (const cut of cuts(file, this.bounds, separator)) {
        const read = cut.taken - taken;
        taken = cut.taken;
        while (underWay.size >= AT_ONCE) await Promise.race(underWay);
        if (failed.length) throw failed[0];
        const number = end.chunks++;
        const task = this.store(part, number, file, header, cut, durable.get(number))
          .then((stored) => this.count(end, stored, read))
          .catch((error) => failed.push(error))
          .finally(() => underWay.delete(task));
        underWay.add(task);
      }
    }
    await Promise.all(underWay);
    if (failed.length) throw failed[0];
    if (chunks.some(({ number }) => number >= end.chunks)) throw this.changed(part, end.chunks);
    return end;
  }

  async store(part, number, file, header, cut, known) {
    const body = new Uint8Array(header.length + cut.data.length);
    body.set(header);
    body.set(cut.data, header.length);
    const digest = await sha256(body);
    if (known) {
      if (digest && hex(digest) !== known.digest) throw this.changed(part, number);
      return { ...known, isResumed: true };
    }
    const headers = {
      "Content-Type": "text/csv",
      ...(digest && { "Content-Digest": `sha-256=:${base64(digest)}:` }),
    };
    const hint = new URLSearchParams({ [part.hint]: `${part.table}/${file.name}`.slice(-200), line: cut.line });
    const path = `${this.place}/${part.place}/chunks/${number}?${hint}`;
    try {
      return await this.ask(() => this.put(path, headers, body));
    } catch (error) {
      if (error instanceof Refused && error.status === 409) throw this.changed(part, number);
      throw error;
    }
  }

  put(path, headers, content) {
    const options = { headers, content, seconds: BODY_SECONDS };
    return this.gateway.call("PUT", path, (response) => response.json(), options);
  }

  count(end, { rows, rejected, isResumed }, read) {
    end.rows += rows;
    const { figures } = this;
    this.report({
      done: figures.done + read,
      rows: figures.rows + rows,
      rejected: figures.rejected + rejected,
      chunks: figures.chunks + 1,
      resumed: figures.resumed + (isResumed ? 1 : 0),
    });
  }

  /** Returns false if chunks are missing. An END whose response was lost is repeated, even if the run has moved on. */
  async seal(part, end) {
    try {
      await this.ask(() => this.gateway.json("POST", `${this.place}/${part.place}/end`, { body: end }));
      return true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.status === 409 && error.word === "incomplete") return false;
      const { tables } = await this.ask(() => this.gateway.get(this.place));
      if (error.status === 410 && tables[part.table].sealed) return true;
      throw error;
    }
  }

  /** Retries for as long as it takes: the gateway may be busy or away, and acknowledged chunks are safe. */
  async ask(work) {
    for (let seconds = FIRST_PAUSE; ; seconds = Math.min(seconds * 2, LONGEST_PAUSE)) {
      try {
        const answer = await work();
        if (this.failed) postMessage({ kind: "warning", text: null });
        this.failed = 0;
        return answer;
      } catch (error) {
        if (!error.passes) throw error;
        if (error.status !== 429) postMessage({ kind: "warning", text: error.message });
        this.failed += 1;
        await new Promise((resolve) =>
          setTimeout(resolve, 1000 * Math.max(error.retryAfter, seconds * (0.5 + Math.random() / 2))),
        );
      }
    }
  }

  report(changes) {
    Object.assign(this.figures, changes);
    postMessage({ kind: "progress", figures: this.figures });
  }

  changed({ name }, number) {
    return new Changed(`the files have changed since this run began: ${name}, chunk ${number} differs`);
  }
}

/** Rows that are numbered and ended together: a table of a run … */
const tableParts = (tables, status) =>
  Object.entries(tables).map(([table, files]) => {
    const { columns, sealed } = status.tables[table];
    return { place: `tables/${table}`, name: table, table, files, columns, hint: "file", isEnded: sealed };
  });

/** … or a file of a data set. */
const filePart = (file, { file: id, table, name, held, ended }) => ({
  place: `files/${id}`,
  name: `${table}/${name}`,
  table,
  files: [file],
  columns: file.view.columns,
  hint: "file_name",
  isHeld: held,
  isEnded: ended,
});

const sizeOf = (files) => files.reduce((whole, { file }) => whole + file.size, 0);
const hex = (digest) => [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const base64 = (digest) => btoa(String.fromCharCode(...digest));

/** Returns null where the browser offers cryptography only for HTTPS: then only TCP's checksums protect the body. */
async function sha256(bytes) {
  return globalThis.crypto?.subtle ? new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)) : null;
}

addEventListener("message", async ({ data }) => {
  try {
    await new Upload(data).send();
    postMessage({ kind: "done" });
  } catch (error) {
    postMessage({ kind: "failed", text: error.message });
  }
});
