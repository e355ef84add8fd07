// Who is asking, whether anybody answers, and what time it is there. The token never leaves this tab.
import { announce, pause } from "./dom.js";
import { Gateway, Refused } from "./gateway.js";

const KEY = "kopitiam.token";
const FIRST_PAUSE = 0.5;
const LONGEST_PAUSE = 4;
const READY_SECONDS = 5;
let skew = 0; // the gateway's clock minus ours, in seconds
let isSilent = false;
let signingIn = null;

export const token = () => sessionStorage.getItem(KEY);
export const now = () => Date.now() / 1000 + skew;

export const gateway = new Gateway(token, {
  onAnswer(response) {
    const there = Date.parse(response.headers.get("Date"));
    if (there && Math.abs((there - Date.now()) / 1000 - skew) > 2) skew = (there - Date.now()) / 1000;
  },
  onSilence() {
    if (!isSilent) void waitForAnswer();
  },
});

/** Says that nobody answers, and takes it back by itself; pages hear `back` and show what is new. */
async function waitForAnswer() {
  isSilent = true;
  const trouble = document.getElementById("trouble");
  trouble.textContent = "The gateway does not answer. Nothing that it acknowledged is lost; trying again…";
  trouble.hidden = false;
  document.body.classList.add("silent");
  for (let seconds = FIRST_PAUSE; ; seconds = Math.min(seconds * 1.5, LONGEST_PAUSE)) {
    await pause(seconds);
    if (await isReady()) break;
  }
  isSilent = false;
  trouble.hidden = true;
  document.body.classList.remove("silent");
  announce("The gateway is back.");
  document.dispatchEvent(new Event("back"));
}

export async function isReady() {
  const signal = AbortSignal.timeout(READY_SECONDS * 1000);
  const response = await fetch("/readyz", { cache: "no-store", signal }).catch(() => null);
  return response?.ok ?? false;
}

/** What the gateway tells about itself; asks for a token first if it wants one and there is none. */
export async function enter() {
  const about = await patiently(() => gateway.get("/about"));
  if (about.needs_token && !token()) await signIn("");
  showSignOut(about.needs_token);
  return about;
}

/** Runs a call until somebody answers. */
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
      if (token() === used) await signIn("That token is not known here. Perhaps a character is missing?");
    }
  }
}

/** Several calls may find out at once that a token is wanted: they share one dialog. */
function signIn(flaw) {
  signingIn ??= askForToken(flaw).finally(() => (signingIn = null));
  return signingIn;
}

function askForToken(flaw) {
  sessionStorage.removeItem(KEY);
  const dialog = document.getElementById("signing-in");
  const input = document.getElementById("token");
  const told = document.getElementById("token-flaw");
  told.textContent = flaw;
  input.value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const close = () => {
      const given = input.value.trim();
      input.value = "";
      if (!/^[\x21-\x7e]+$/.test(given)) {
        dialog.showModal(); // nothing at all is given by Escape
        if (given) told.textContent = "That is no token: there is a blank in it, or a letter that no token has.";
        return;
      }
      dialog.removeEventListener("close", close);
      sessionStorage.setItem(KEY, given);
      resolve();
    };
    dialog.addEventListener("close", close);
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
