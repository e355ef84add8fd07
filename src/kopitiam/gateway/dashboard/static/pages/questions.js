// Questions: the catalog, and own ones, checked while they are written, and stored in this browser.
import { fill, h } from "../dom.js";
import { definitionsEditor, explained } from "../parts/editor.js";
import { card } from "../parts/marks.js";
import { title } from "../parts/title.js";
import { catalog, choose, keepOwnText, ownText } from "../questions.js";
import { tomlOf } from "../toml.js";

export async function show(main, { signal }) {
  title(main, "Questions", h("a", { class: "button main", href: "#/upload" }, "New upload"));
  const editor = definitionsEditor({
    text: ownText(),
    help: "Written as TOML, checked while you type, kept in this browser. A new upload can ask them.",
    signal,
    onText: keepOwnText,
    more: askLink,
  });
  const list = h("div", { class: "catalog" }, h("p", { class: "soft" }, "Loading…"));
  main.append(
    card("Your questions", editor.element),
    h("section", { "aria-labelledby": "catalog" }, h("h2", { id: "catalog" }, "The catalog"), list),
  );
  void editor.judge();
  const { questions } = await catalog(signal);
  const template = (question) => tomlOf({ ...question.definition, ...renamed(question) });
  fill(
    list,
    questions.map((question) => entry(question, () => editor.add(template(question)))),
  );
}

/** A built-in question that becomes a template needs its own name and stages. */
const renamed = ({ name }) => ({ name: `my_${name}`, stages: undefined });

function askLink(questions) {
  const ask = () => choose(questions.map(({ name }) => name));
  return h("p", {}, h("a", { href: "#/upload", onclick: ask }, "Ask in a new upload"));
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
