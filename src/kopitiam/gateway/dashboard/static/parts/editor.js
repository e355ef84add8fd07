// A field for own questions as TOML, checked by the gateway while they are written, with the line of the first flaw.
import { fill, h, pause } from "../dom.js";
import { plural } from "../format.js";
import { check } from "../questions.js";
import { nameOf } from "./cells.js";

const CHECK_SECONDS = 0.3; // after the last key
const MOST_CHARACTERS = 200_000;
export const EXAMPLE = `[[question]]
name    = "sales_by_hour"
title   = "Sales by hour of day and store"
from    = "transactions"
where   = ["@year", "@hour"]
by      = { hour = "hour(created_at)", store_id = "store_id" }
measure = { revenue = "sum(final_amount)", purchases = "count(*)" }
columns = ["hour", "store_name", "revenue", "purchases"]
order   = ["hour", "store_name"]
chart   = { mark = "bar", x = "hour", y = "revenue", color = "store_name" }
`;

/**
 * @param text       what is written there at first
 * @param help       a sentence about it
 * @param rows       lines that are visible
 * @param onText     gets the text whenever it changes
 * @param onChecked  gets {questions, flaws} whenever they were checked
 * @param more       what follows the questions that can be asked
 */
export function definitionsEditor({ text: before, help, rows = 18, signal, onText, onChecked, more }) {
  const word = h("div", { class: "word", role: "status", "aria-live": "polite" });
  const text = h("textarea", {
    id: "definitions",
    rows,
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    wrap: "off",
    maxlength: MOST_CHARACTERS,
    placeholder: EXAMPLE,
    "aria-describedby": "definitions-help",
    oninput: () => judge(),
  });
  text.value = before;
  const element = h(
    "div",
    {},
    h("p", { class: "soft", id: "definitions-help" }, help),
    h(
      "div",
      { class: "editor" },
      h("div", { class: "field" }, h("label", { for: "definitions" }, "Definitions"), text),
      word,
    ),
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => add(EXAMPLE) }, "Insert an example")),
  );
  let judging = 0;

  async function judge(isAtOnce = false) {
    const mine = ++judging;
    const isOutdated = () => signal.aborted || mine !== judging;
    onText?.(text.value);
    if (!isAtOnce) await pause(CHECK_SECONDS, signal);
    if (isOutdated()) return;
    word.setAttribute("aria-busy", "true");
    try {
      const found = await check(text.value, signal);
      if (isOutdated()) return;
      fill(word, wordOf(found, goTo, more));
      onChecked?.(found);
    } catch (error) {
      if (!isOutdated()) fill(word, h("p", { class: "flaw" }, error.message));
    } finally {
      if (!isOutdated()) word.removeAttribute("aria-busy");
    }
  }

  function goTo(line) {
    const lines = text.value.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
  }

  function add(pattern) {
    text.value = `${text.value.trimEnd()}${text.value.trim() ? "\n\n" : ""}${pattern}`;
    text.focus();
    text.setSelectionRange(text.value.length, text.value.length);
    void judge(true);
  }

  return { element, add, judge: () => judge(true) };
}

function wordOf({ questions, flaws }, goTo, more) {
  if (flaws.length) return flaws.map((flaw) => flawOf(flaw, goTo));
  if (!questions.length) return h("p", { class: "soft" }, "Nothing is defined yet.");
  return [
    h("p", { class: "good" }, `${plural(questions.length, "question")} can be asked.`),
    questions.map((question) => h("div", { class: "judged" }, h("b", {}, nameOf(question.title)), explained(question))),
    more?.(questions),
  ];
}

function flawOf({ line, message }, goTo) {
  return h(
    "p",
    { class: "flaw" },
    message,
    " ",
    line === null
      ? null
      : h("button", { type: "button", class: "small", onclick: () => goTo(line) }, `Go to line ${line}`),
  );
}

/** The gateway's explanation: what the question reads, keeps, merges and shows. */
export function explained({ explains }) {
  return h(
    "ul",
    { class: "explains" },
    explains.map((sentence) => h("li", {}, h("bdi", {}, sentence))),
  );
}
