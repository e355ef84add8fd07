// Ask a data set: choose questions and parameters, from scratch or as a run asked them, and nothing is sent again.
// With `since`, two versions are asked the same, to compare their answers.
import { dataPlace, dataSet, versionIfAny } from "../data.js";
import { h } from "../dom.js";
import { count, moment } from "../format.js";
import { askForm } from "../parts/ask.js";
import { definitionsEditor } from "../parts/editor.js";
import { card } from "../parts/marks.js";
import { rename, title } from "../parts/title.js";
import { catalog, choose, chosen, ownText } from "../questions.js";
import { gateway, patiently } from "../session.js";
import { tomlOf } from "../toml.js";

export const missing = ["No such data set", "It may have been dropped, or it belongs to another token."];

export async function show(main, { path, id, query, about, signal }) {
  const heading = title(main, "Ask");
  const isAgain = path.startsWith("#/runs/");
  const run = isAgain ? await patiently(() => gateway.get(`/runs/${id}`, signal), signal) : null;
  if (isAgain && !run.data) return explainWhyNot(main, heading, run);
  const name = isAgain ? run.data.name : id;
  const detail = isAgain ? await versionIfAny(name, signal) : await dataSet(name, {}, signal);
  if (!detail) return void rename(heading, "The data set is gone", h("a", { class: "button", href: "#/data" }, "All data sets"));
  const since = Number(query.get("since")) || null;
  const version = Number(query.get("version")) || detail.version;
  rename(heading, since ? `What changed in ${name}` : `Ask ${name}`, h("a", { class: "button", href: dataPlace(name) }, "The data set"));
  const { questions: known } = await catalog(signal);
  const own = run ? ownDefinitions(run, known) : ownText();
  const wanted = run?.questions.ask;
  let names = wanted ? new Set(wanted) : null; // as the run asked; then as the boxes say

  const choice = since ? null : versionField(detail, version);
  const editor = definitionsEditor({
    text: own,
    help: run
      ? "The own questions of this run. Changes here count for the new run only."
      : "As they are kept in this browser. Changes here count for this run only.",
    rows: 12,
    signal,
    onChecked: ({ questions, flaws }) => offer([...known, ...questions], flaws),
  });
  const editing = h("details", { open: run && own ? true : null }, h("summary", {}, "Own questions"), editor.element);
  const form = askForm({
    values: run?.questions ?? about.questions,
    label: run ? run.label : "",
    before: [choice?.element ?? null, editing],
    start: since ? `Ask versions ${count(since)} and ${count(version)}` : "Ask",
    onChoice: (all) => (run ? null : choose(all)),
    open: since ? compare : ask,
  });
  const text = since
    ? `Versions ${count(since)} and ${count(version)} are asked the same questions. Nothing is sent again.`
    : "Nothing is sent again. What the same questions have computed of a file before is used again.";
  main.append(h("p", { class: "soft lead" }, text), card("What to ask", form.element));
  offer(known, []);
  void editor.judge();

  function offer(questions, flaws) {
    const there = names && questions.filter((question) => names.has(question.name));
    const now = there?.length ? new Set(there.map((question) => question.name)) : chosen(questions);
    if (!names && questions !== known) names = now;
    const flaw = flaws.length ? h("p", { class: "flaw" }, "Your own questions have a flaw: ", flaws[0].message) : null;
    form.offer(questions, now, flaw);
  }

  async function ask(body) {
    const { run: opened } = await openRun({ ...body, data: { name, version: choice.value(), upload: false } });
    location.hash = `#/runs/${opened}`;
  }

  /** Two runs; the page that compares them waits for both. */
  async function compare({ label, idempotency_key: key, ...body }) {
    const one = (number) =>
      openRun({
        ...body,
        label: `${label || name}, version ${number}`,
        idempotency_key: `${key}-${number}`,
        data: { name, version: number, upload: false },
      });
    const [before, after] = [await one(since), await one(version)];
    location.hash = `#/changes/${before.run}/${after.run}`;
  }

  const openRun = (body) => patiently(() => gateway.json("POST", "/runs", { body, signal }), signal);
}

/** The definitions of a run that are not in the catalog, as TOML. */
function ownDefinitions({ questions }, known) {
  const builtin = new Set(known.map(({ name }) => name));
  return (questions.definitions ?? []).filter(({ name }) => !builtin.has(name)).map(tomlOf).join("\n");
}

function versionField({ versions }, version) {
  const option = (one) =>
    h("option", { value: one.version, selected: one.version === version }, `version ${count(one.version)}, ${moment(one.created_at)}`);
  const select = h("select", { id: "version" }, versions.map(option));
  return {
    element: h("div", { class: "field" }, h("label", { for: "version" }, "Version"), select),
    value: () => Number(select.value),
  };
}

function explainWhyNot(main, heading, run) {
  rename(heading, "The files of this run are gone", h("a", { class: "button", href: `#/runs/${run.run}` }, "The run"));
  main.append(
    card(
      "Why it cannot be asked again",
      h("p", {}, "This run is not over a data set: its files were removed when its answers were out."),
      h("p", {}, "Send them once more as a data set, and they can be asked as often as you like: ", h("a", { href: "#/upload" }, "New upload"), ", with a name for the data set."),
      h("p", { class: "soft" }, "Or from a terminal: ", h("code", {}, `kopi submit FOLDER --data NAME --server ${location.origin}`)),
    ),
  );
}
