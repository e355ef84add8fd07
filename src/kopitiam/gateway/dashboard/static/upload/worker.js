// One upload in a worker: reads and cuts files, sends a few bodies at once, and sends END. It is independent of the page,
// and a tab in the background does not slow it down.
import { Gateway, Refused } from "../gateway.js";
import { cuts, headerOf } from "./cut.js";

const AT_ONCE = 4;
const ROUNDS = 3; // of sending chunks that END reports as missing
const BODY_SECONDS = 600; // a few of them at once, over a slow line
const ALIVE_SECONDS = 2;
const [FIRST_PAUSE, LONGEST_PAUSE] = [0.2, 5];

class Changed extends Error {}

class Upload {
  constructor({ run, tables, bounds, beatSeconds, token }) {
    Object.assign(this, { run, tables, bounds, beatSeconds, place: `/runs/${run}`, troubled: 0 });
    this.gateway = new Gateway(() => token);
    this.figures = {
      done: 0,
      total: sizeOf(Object.values(tables).flat()),
      rows: 0,
      rejected: 0,
      chunks: 0,
      resumed: 0,
      table: null,
    };
  }

  async send() {
    const beating = setInterval(() => this.gateway.get(this.place).catch(() => {}), this.beatSeconds * 1000);
    const living = setInterval(() => postMessage({ kind: "alive" }), ALIVE_SECONDS * 1000);
    try {
      const { state, tables, error } = await this.ask(() => this.gateway.get(this.place));
      if (["failed", "ended"].includes(state)) throw new Error(`the run is over: ${error ?? state}`);
      for (const [table, files] of Object.entries(this.tables)) {
        if (tables[table].sealed) this.tell({ done: this.figures.done + sizeOf(files) });
        else await this.sendTable(table, files);
      }
    } finally {
      clearInterval(beating);
      clearInterval(living);
    }
  }

  async sendTable(table, files) {
    this.tell({ table });
    const before = this.figures.done;
    for (let round = 0; round < ROUNDS; round += 1) {
      this.tell({ done: before });
      const end = await this.sendRows(table, files);
      this.tell({ done: before + sizeOf(files) });
      if (await this.seal(table, end)) return;
    }
    throw new Error(`${table} is still not complete after ${ROUNDS} rounds`);
  }

  /** Sends chunks that are not durable yet; durable ones must have the same bytes. */
  async sendRows(table, files) {
    const { chunks } = await this.ask(() => this.gateway.get(`${this.place}/tables/${table}/chunks`));
    const durable = new Map(chunks.map((chunk) => [chunk.number, chunk]));
    const end = { chunks: 0, rows: 0 };
    const underWay = new Set();
    const failed = [];
    for (const file of files) {
      const header = await headerOf(file);
      this.tell({ done: this.figures.done + header.length });
      for await (const cut of cuts(file, this.bounds)) {
        while (underWay.size >= AT_ONCE) await Promise.race(underWay);
        if (failed.length) throw failed[0];
        const number = end.chunks++;
        const task = this.store(table, number, file, header, cut, durable.get(number))
          .then((stored) => this.count(end, stored, cut))
          .catch((error) => failed.push(error))
          .finally(() => underWay.delete(task));
        underWay.add(task);
      }
    }
    await Promise.all(underWay);
    if (failed.length) throw failed[0];
    if (chunks.some(({ number }) => number >= end.chunks)) throw this.changed(table, end.chunks);
    return end;
  }

  async store(table, number, file, header, cut, known) {
    const body = new Uint8Array(header.length + cut.data.length);
    body.set(header);
    body.set(cut.data, header.length);
    const digest = await sha256(body);
    if (known) {
      if (digest && hex(digest) !== known.digest) throw this.changed(table, number);
      return { ...known, isResumed: true };
    }
    const headers = {
      "Content-Type": "text/csv",
      ...(digest && { "Content-Digest": `sha-256=:${base64(digest)}:` }),
    };
    const hint = new URLSearchParams({ file: `${table}/${file.name}`.slice(-200), line: cut.line });
    const path = `${this.place}/tables/${table}/chunks/${number}?${hint}`;
    try {
      return await this.ask(() => this.put(path, headers, body));
    } catch (error) {
      if (error instanceof Refused && error.status === 409) throw this.changed(table, number);
      throw error;
    }
  }

  put(path, headers, content) {
    const options = { headers, content, seconds: BODY_SECONDS };
    return this.gateway.call("PUT", path, (response) => response.json(), options);
  }

  count(end, { rows, rejected, isResumed }, cut) {
    end.rows += rows;
    const { figures } = this;
    this.tell({
      done: figures.done + cut.end - cut.start,
      rows: figures.rows + rows,
      rejected: figures.rejected + rejected,
      chunks: figures.chunks + 1,
      resumed: figures.resumed + (isResumed ? 1 : 0),
    });
  }

  /** Returns false if chunks are missing. An END whose response was lost is repeated, even if the run has moved on. */
  async seal(table, end) {
    try {
      await this.ask(() => this.gateway.json("POST", `${this.place}/tables/${table}/end`, { body: end }));
      return true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.status === 409 && error.word === "incomplete") return false;
      const { tables } = await this.ask(() => this.gateway.get(this.place));
      if (error.status === 410 && tables[table].sealed) return true;
      throw error;
    }
  }

  /** Retries for as long as it takes: the gateway may be busy or away, and acknowledged chunks are safe. */
  async ask(work) {
    for (let seconds = FIRST_PAUSE; ; seconds = Math.min(seconds * 2, LONGEST_PAUSE)) {
      try {
        const answer = await work();
        if (this.troubled) postMessage({ kind: "trouble", text: null });
        this.troubled = 0;
        return answer;
      } catch (error) {
        if (!error.passes) throw error;
        if (error.status !== 429) postMessage({ kind: "trouble", text: error.message });
        this.troubled += 1;
        await new Promise((resolve) =>
          setTimeout(resolve, 1000 * Math.max(error.retryAfter, seconds * (0.5 + Math.random() / 2))),
        );
      }
    }
  }

  tell(changes) {
    Object.assign(this.figures, changes);
    postMessage({ kind: "progress", figures: this.figures });
  }

  changed(table, number) {
    return new Changed(`the files have changed since this run began: ${table}, chunk ${number} differs`);
  }
}

const sizeOf = (files) => files.reduce((whole, file) => whole + file.size, 0);
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
