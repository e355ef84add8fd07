// Calls to the gateway, from the page or from the worker: retried by whoever calls, told apart by kind here.

const API = "/api/v1";

/** The gateway said no; `word` is for programs, the message for people. */
export class Refused extends Error {
  constructor(status, body, retryAfter) {
    super(body.message ?? `the gateway answers ${status}`);
    Object.assign(this, { status, word: body.error ?? "refused", body, retryAfter });
  }

  /** Trouble that may be over soon. */
  get passes() {
    return [408, 429, 502, 503, 504].includes(this.status);
  }
}

/** Nobody answers: killed, stopped, or the network is away. */
export class Unreachable extends Error {
  passes = true;
  retryAfter = 0;
}

export class Gateway {
  /** `token()` gives what to show at the door, or null. */
  constructor(token, { onAnswer = () => {}, onSilence = () => {} } = {}) {
    Object.assign(this, { token, onAnswer, onSilence });
  }

  async json(method, path, { body, signal } = {}) {
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    const content = body === undefined ? undefined : JSON.stringify(body);
    const response = await this.call(method, path, { headers, content, signal });
    return response.json();
  }

  get(path, signal) {
    return this.json("GET", path, { signal });
  }

  async call(method, path, { headers = {}, content, signal } = {}) {
    const token = this.token();
    const sent = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
    let response;
    try {
      response = await fetch(API + path, { method, headers: sent, body: content, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      this.onSilence();
      throw new Unreachable("the gateway does not answer");
    }
    if (!response.ok) {
      const body = await response.json().catch(() => ({}));
      const refusal = new Refused(response.status, body, Number(response.headers.get("Retry-After")) || 0);
      if (refusal.word === "closing") this.onSilence();
      throw refusal;
    }
    this.onAnswer(response);
    return response;
  }

  /** Server-sent events by fetch, because EventSource cannot carry a token. Ends when the stream does. */
  async *events(path, signal) {
    const response = await this.call("GET", path, { headers: { Accept: "text/event-stream" }, signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    try {
      for (;;) {
        const { done, value } = await this.#read(reader, signal);
        if (done) return;
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data: "));
          if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  async #read(reader, signal) {
    try {
      return await reader.read();
    } catch (error) {
      if (signal?.aborted) throw error;
      this.onSilence();
      throw new Unreachable("the gateway has gone away");
    }
  }
}
