// Figures as people read them. Amounts stay decimal text from the gateway to the page: no float touches them.

const COUNT = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 3 });
const MOMENT = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
export const FIGURE_SPACE = "\u2007";

export const count = (number) => COUNT.format(number);
export const short = (number) => SHORT.format(number);
export const moment = (seconds) => MOMENT.format(new Date(seconds * 1000));

/** `12055387` → `12,055,387`, whatever its length; decimals stay as they are. */
export const grouped = (text) => text.replace(/^(-?\d+)/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));

/** `12055387.7600` → `RM 12,055,387.76`: at least two decimals, and never one digit fewer than there are. */
export function money(text) {
  const [, sign, whole, decimals] = /^(-?)(\d+)(?:\.(\d*))?$/.exec(text) ?? [null, "", null, ""];
  if (whole === null) return text;
  return `${sign ? "−" : ""}RM ${grouped(whole)}.${(decimals ?? "").replace(/0+$/, "").padEnd(2, "0")}`;
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  if (whole < 86400)
    return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log10(Math.max(number, 1)) / 3), units.length - 1);
  const scaled = number / 1000 ** power;
  return `${power && scaled < 100 ? scaled.toFixed(1) : Math.round(scaled)} ${units[power]}`;
}

export const percent = (share) => `${Math.floor(share * 100)} %`;
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
