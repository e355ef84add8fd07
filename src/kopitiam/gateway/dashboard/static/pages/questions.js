// Questions: the catalog, and own ones, checked while they are written, and stored in this browser.
import { fill, h, pause } from "../dom.js";
import { plural } from "../format.js";
import { nameOf } from "../parts/cells.js";
import { title } from "../parts/title.js";
import { card } from "../parts/marks.js";
import { catalog, check, choose, keepOwnText, ownText } from "../questions.js";
import { tomlOf } from "../toml.js";

const CHECK_SECONDS = 0.3; // after the last key
const MOST_CHARACTERS = 200_000;
const PATTERN = `[[question]]
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

export async function show(main, { signal }) {
  title(main, "Questions", h("a", { class: "button main", href: "#/upload" }, "New upload"));
  const word = h("div", { class: "word", role: "status", "aria-live": "polite" });
  const text = h("textarea", {
    id: "definitions",
    rows: 18,
    spellcheck: "false",
    autocapitalize: "off",
    autocomplete: "off",
    wrap: "off",
    maxlength: MOST_CHARACTERS,
    placeholder: PATTERN,
    "aria-describedby": "definitions-help",
    oninput: () => judge(),
  });
  text.value = ownText();
  const editor = card(
    "Your questions",
    h(
      "p",
      { class: "soft", id: "definitions-help" },
      "Written as TOML, checked while you type, kept in this browser. A new upload can ask them.",
    ),
    h(
      "div",
      { class: "editor" },
      h("div", { class: "field" }, h("label", { for: "definitions" }, "Definitions"), text),
      word,
    ),
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => add(PATTERN) }, "Insert an example")),
  );
  const list = h("div", { class: "catalog" }, h("p", { class: "soft" }, "Loading…"));
  main.append(editor, h("section", { "aria-labelledby": "catalog" }, h("h2", { id: "catalog" }, "The catalog"), list));
  let judging = 0;

  async function judge(isAtOnce = false) {
    const mine = ++judging;
    const isOutdated = () => signal.aborted || mine !== judging;
    keepOwnText(text.value);
    if (!isAtOnce) await pause(CHECK_SECONDS, signal);
    if (isOutdated()) return;
    word.setAttribute("aria-busy", "true");
    try {
      const found = await check(text.value, signal);
      if (!isOutdated()) fill(word, wordOf(found, goTo));
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

  void judge(true);
  const { questions } = await catalog(signal);
  fill(
    list,
    questions.map((question) => entry(question, () => add(tomlOf({ ...question.definition, ...renamed(question) })))),
  );
}

/** A built-in question that becomes a template needs its own name and stages. */
const renamed = ({ name }) => ({ name: `my_${name}`, stages: undefined });

function wordOf({ questions, flaws }, goTo) {
  if (flaws.length) return flaws.map((flaw) => flawOf(flaw, goTo));
  if (!questions.length) return h("p", { class: "soft" }, "Nothing is defined yet.");
  const ask = () => choose(questions.map(({ name }) => name));
  return [
    h("p", { class: "good" }, `${plural(questions.length, "question")} can be asked.`),
    questions.map((question) => h("div", { class: "judged" }, h("b", {}, nameOf(question.title)), explained(question))),
    h("p", {}, h("a", { href: "#/upload", onclick: ask }, "Ask in a new upload")),
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

function entry(question, use) {
  return h(
    "article",
    { class: "card", "aria-labelledby": `catalog-${question.name}` },
    h(
      "header",
      {},
      h("h3", { id: `catalog-${question.name}` }, question.title),
      h("button", { type: "button", class: "small", onclick: use }, "Use as a template"),
    ),
    explained(question),
    h("details", {}, h("summary", {}, "Definition"), h("pre", {}, h("code", {}, tomlOf(question.definition)))),
  );
}

/** The gateway's explanation: what the question reads, keeps, merges and shows. */
function explained({ explains }) {
  return h(
    "ul",
    { class: "explains" },
    explains.map((sentence) => h("li", {}, h("bdi", {}, sentence))),
  );
}
