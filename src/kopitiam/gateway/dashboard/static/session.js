// The token, whether the gateway answers, and its clock. The token never leaves this tab.
import { announce, pause } from "./dom.js";
import { Fleet, Gateway, Refused } from "./gateway.js";

const KEY = "kopitiam.token";
const FIRST_PAUSE = 0.5;
const LONGEST_PAUSE = 4;
const READY_SECONDS = 5;
const LEARN_SECONDS = 30;
let skew = 0; // the gateway's clock minus ours, in seconds
let isSilent = false;
let signingIn = null;

export const token = () => sessionStorage.getItem(KEY);
export const now = () => Date.now() / 1000 + skew;

export const fleet = new Fleet();

export const gateway = new Gateway(token, {
  fleet,
  onAnswer(response) {
    const there = Date.parse(response.headers.get("Date"));
    if (there && Math.abs((there - Date.now()) / 1000 - skew) > 2) skew = (there - Date.now()) / 1000;
  },
  onSilence() {
    if (!isSilent) void waitForAnswer();
  },
});

/** Shows that the gateway does not answer until it or another one does; then pages get the event `back` and refresh. */
async function waitForAnswer() {
  isSilent = true;
  const warning = document.getElementById("warning");
  warning.textContent = "The gateway does not answer. Acknowledged chunks are safe; trying again…";
  warning.hidden = false;
  document.body.classList.add("silent");
  for (let seconds = FIRST_PAUSE; ; seconds = Math.min(seconds * 1.5, LONGEST_PAUSE)) {
    await pause(seconds);
    if (await isReady()) break;
  }
  isSilent = false;
  warning.hidden = true;
  document.body.classList.remove("silent");
  announce("The gateway is back.");
  document.dispatchEvent(new Event("back"));
}

/** Whether any gateway of the fleet is ready; the first one is used from then on. */
export async function isReady() {
  const ready = fleet.origins.map(async (origin) => {
    const signal = AbortSignal.timeout(READY_SECONDS * 1000);
    const response = await fetch(`${origin}/readyz`, { cache: "no-store", signal });
    return response.ok ? origin : Promise.reject(new Error("not ready"));
  });
  const first = await Promise.any(ready).catch(() => null);
  if (first !== null) fleet.use(first);
  return first !== null;
}

/** Learns the other gateways of the fleet, for when this one is away. */
export async function learnFleet() {
  const nodes = await gateway.get("/nodes").catch(() => []);
  fleet.learn(nodes.filter(({ kind, url }) => kind === "gateway" && url).map(({ url }) => url));
  setTimeout(learnFleet, LEARN_SECONDS * 1000);
}

/** Returns `GET /about`; asks for a token first if the gateway needs one and there is none. */
export async function enter() {
  const about = await patiently(() => gateway.get("/about"));
  if (about.needs_token && !token()) await signIn("");
  showSignOut(about.needs_token);
  return about;
}

/** Repeats a call until the gateway answers. */
export async function patiently(work, signal) {
  for (;;) {
    try {
      return await welcome(work, signal);
    } catch (error) {
      if (signal?.aborted || !error.passes) throw error;
      await pause(Math.max(error.retryAfter, 1), signal);
    }
  }
}

/** Runs a call. A token that is refused is asked for again, unless another one was entered meanwhile; then the call is
 *  made again. */
export async function welcome(work, signal) {
  for (;;) {
    const used = token();
    try {
      return await work();
    } catch (error) {
      if (signal?.aborted || !(error instanceof Refused && error.status === 401)) throw error;
      if (token() === used) await signIn("This token is not known. Is a character missing?");
    }
  }
}

/** Several calls may need a token at once: they share one dialog. */
function signIn(flaw) {
  signingIn ??= askForToken(flaw).finally(() => (signingIn = null));
  return signingIn;
}

function askForToken(flaw) {
  sessionStorage.removeItem(KEY);
  const dialog = document.getElementById("signing-in");
  const input = document.getElementById("token");
  const message = document.getElementById("token-flaw");
  message.textContent = flaw;
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const ended = new AbortController();
    const listen = (target, name, act) => target.addEventListener(name, act, { signal: ended.signal });
    listen(dialog.querySelector("form"), "submit", (event) => {
      const given = input.value.trim();
      input.value = "";
      if (!/^[\x21-\x7e]+$/.test(given)) {
        event.preventDefault();
        if (given) message.textContent = "This is not a token: it has a blank or an invalid character.";
        return;
      }
      sessionStorage.setItem(KEY, given); // before the dialog closes: the page may be loaded again at once
      ended.abort();
      resolve();
    });
    listen(dialog, "close", () => dialog.showModal()); // Escape must not close it
  });
}

function showSignOut(isNeeded) {
  const button = document.getElementById("sign-out");
  button.hidden = !isNeeded;
  button.addEventListener("click", () => {
    sessionStorage.removeItem(KEY);
    location.reload();
  });
}
