// Calls to the gateway, from the page or from the worker. Errors are classified here; callers retry.

const API = "/api/v1";
const ANSWER_SECONDS = 30;
const SIGN_OF_LIFE_SECONDS = 40; // a stream of events has a keep-alive every 15 seconds

/** The gateway refused; `word` is the error code, the message is for people. */
export class Refused extends Error {
  constructor(status, body, retryAfter) {
    super(body.message ?? `the gateway answers ${status}`);
    Object.assign(this, { status, word: body.error ?? "refused", body, retryAfter });
  }

  /** Whether a retry may succeed. */
  get passes() {
    return [408, 429, 502, 503, 504].includes(this.status);
  }

  /** Whether the gateway is closing or something it needs is away. Answers that are not ready do not count. */
  get isSilence() {
    return [502, 503, 504].includes(this.status) && this.word !== "not_ready";
  }
}

/** No response: the gateway is killed or frozen, or the network is away. */
export class Unreachable extends Error {
  passes = true;
  retryAfter = 0;
}

export class Gateway {
  /** `token()` returns the bearer token, or null. */
  constructor(token, { onAnswer = () => {}, onSilence = () => {} } = {}) {
    Object.assign(this, { token, onAnswer, onSilence });
  }

  json(method, path, { body, ...options } = {}) {
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    const content = body === undefined ? undefined : JSON.stringify(body);
    return this.call(method, path, (response) => response.json(), { headers, content, ...options });
  }

  get(path, signal, seconds) {
    return this.json("GET", path, { signal, seconds });
  }

  /** Returns what `read` makes of the response; one that is not complete in time counts as none. */
  async call(method, path, read, { headers = {}, content, signal, seconds = ANSWER_SECONDS } = {}) {
    const token = this.token();
    const sent = token ? { ...headers, Authorization: `Bearer ${token}` } : headers;
    const patience = new AbortController();
    const timer = setTimeout(() => patience.abort(), seconds * 1000);
    const either = signal ? AbortSignal.any([signal, patience.signal]) : patience.signal;
    const asked = { method, headers: sent, body: content, signal: either, cache: "no-store" };
    try {
      const response = await fetch(API + path, asked);
      if (!response.ok) throw await refusal(response);
      const found = await read(response);
      this.onAnswer(response);
      return found;
    } catch (error) {
      if (signal?.aborted) throw error;
      if (!(error instanceof Refused)) throw this.#silence("the gateway does not answer");
      if (error.isSilence) this.onSilence();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Server-sent events by fetch, because EventSource cannot carry a token. Ends when the stream does. */
  async *events(path, signal) {
    const headers = { Accept: "text/event-stream" };
    const stream = await this.call("GET", path, (response) => response.body, { headers, signal });
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
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
    let timer;
    const tooLate = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error("no data from the gateway")), SIGN_OF_LIFE_SECONDS * 1000);
    });
    try {
      return await Promise.race([reader.read(), tooLate]);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw this.#silence("the connection to the gateway was lost");
    } finally {
      clearTimeout(timer);
    }
  }

  #silence(text) {
    this.onSilence();
    return new Unreachable(text);
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  return new Refused(response.status, body, Number(response.headers.get("Retry-After")) || 0);
}
