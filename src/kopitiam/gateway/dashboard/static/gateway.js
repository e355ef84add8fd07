// Calls to the gateway, from the page or from the worker. Errors are classified here; callers retry. A gateway that does
// not answer is left for the next one of the fleet: any gateway serves any run.

const API = "/api/v1";
const ANSWER_SECONDS = 30;
const SIGN_OF_LIFE_SECONDS = 40; // a stream of events has a keep-alive every 15 seconds
const WATCH_SECONDS = 3; // during a long call, between two looks at its gateway
const ALIVE_SECONDS = 4; // for a sign of life

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

/** The gateways of the fleet, as origins, and the one in use. "" is the one that served this page. */
export class Fleet {
  #position = 0;

  constructor(origins = [""]) {
    this.origins = origins;
  }

  get current() {
    return this.origins[this.#position];
  }

  /** Uses the next one, unless another call has left this one already. */
  leave(origin) {
    if (origin === this.current) this.#position = (this.#position + 1) % this.origins.length;
  }

  use(origin) {
    this.#position = Math.max(0, this.origins.indexOf(origin));
  }

  /** Adds gateways by their URLs; those that are gone stay, and are skipped when they do not answer. */
  learn(urls) {
    const others = urls.map((url) => new URL(url).origin).filter((origin) => origin !== location.origin);
    this.origins = [...new Set([...this.origins, ...others])];
  }

  /** Whether the gateway accepts connections, whatever it answers. */
  static async isAlive(origin) {
    const signal = AbortSignal.timeout(ALIVE_SECONDS * 1000);
    return fetch(`${origin}/healthz`, { mode: "no-cors", cache: "no-store", signal }).then(
      () => true,
      () => false,
    );
  }
}

export class Gateway {
  /** `token()` returns the bearer token, or null. */
  constructor(token, { fleet = new Fleet(), onAnswer = () => {}, onSilence = () => {} } = {}) {
    Object.assign(this, { token, fleet, onAnswer, onSilence });
  }

  address(path) {
    return this.fleet.current + API + path;
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
    const options = { method, headers: sent, body: content, signal: either, cache: "no-store" };
    const origin = this.fleet.current;
    const stopWatching = this.#watch(origin, patience);
    try {
      const response = await fetch(this.address(path), options);
      if (!response.ok) throw await refusal(response);
      const found = await read(response);
      this.onAnswer(response);
      return found;
    } catch (error) {
      if (signal?.aborted) throw error;
      if (!(error instanceof Refused)) throw this.#silence(origin, "the gateway does not answer");
      if (error.isSilence) this.#silence(origin);
      throw error;
    } finally {
      clearTimeout(timer);
      stopWatching();
    }
  }

  /** Ends a call whose gateway is gone, if there are others: a broken network is silent for long. */
  #watch(origin, patience) {
    if (this.fleet.origins.length < 2) return () => {};
    const timer = setInterval(async () => {
      if (!(await Fleet.isAlive(origin))) patience.abort();
    }, WATCH_SECONDS * 1000);
    return () => clearInterval(timer);
  }

  /** Server-sent events by fetch, because EventSource cannot carry a token. Ends when the stream does. */
  async *events(path, signal) {
    const headers = { Accept: "text/event-stream" };
    const origin = this.fleet.current;
    const stream = await this.call("GET", path, (response) => response.body, { headers, signal });
    const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
    const gone = new AbortController();
    const stopWatching = this.#watch(origin, gone);
    let text = "";
    try {
      for (;;) {
        const { done, value } = await this.#read(reader, origin, gone.signal, signal);
        if (done) return;
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data: "));
          if (data.length) yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
        }
      }
    } finally {
      stopWatching();
      reader.cancel().catch(() => {});
    }
  }

  async #read(reader, origin, gone, signal) {
    let timer;
    const tooLate = new Promise((_, reject) => {
      const giveUp = () => reject(new Error("no data from the gateway"));
      timer = setTimeout(giveUp, SIGN_OF_LIFE_SECONDS * 1000);
      gone.addEventListener("abort", giveUp);
    });
    try {
      return await Promise.race([reader.read(), tooLate]);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw this.#silence(origin, "the connection to the gateway was lost");
    } finally {
      clearTimeout(timer);
    }
  }

  #silence(origin, text) {
    this.fleet.leave(origin);
    this.onSilence();
    return new Unreachable(text);
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => ({}));
  return new Refused(response.status, body, Number(response.headers.get("Retry-After")) || 0);
}
