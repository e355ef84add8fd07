// Questions that can be asked: the gateway's catalog, and own ones, which this browser stores.
import { gateway, patiently } from "./session.js";

const TEXT_KEY = "kopitiam.questions"; // TOML
const CHOICE_KEY = "kopitiam.asked"; // names

export const ownText = () => localStorage.getItem(TEXT_KEY) ?? "";
export const keepOwnText = (text) => localStorage.setItem(TEXT_KEY, text);

export const catalog = (signal) => patiently(() => gateway.get("/questions", signal), signal);

/** Returns {questions, flaws} of own questions as text; does not call the gateway if there are none. */
export function check(text, signal) {
  if (!text.trim()) return { questions: [], flaws: [] };
  const body = { toml: text };
  return patiently(() => gateway.json("POST", "/questions/check", { body, signal }), signal);
}

/** Returns all questions that can be asked, and the flaws of own ones. */
export async function offered(signal) {
  const [{ questions }, own] = await Promise.all([catalog(signal), check(ownText(), signal)]);
  return { questions: [...questions, ...own.questions], flaws: own.flaws };
}

/** Returns the selected names: as selected before if they still exist, or those of the catalog. */
export function chosen(questions) {
  const before = new Set(JSON.parse(localStorage.getItem(CHOICE_KEY) ?? "[]"));
  const kept = questions.filter(({ name }) => before.has(name));
  const names = kept.length ? kept : questions.filter(({ builtin }) => builtin);
  return new Set(names.map(({ name }) => name));
}

export const choose = (names) => localStorage.setItem(CHOICE_KEY, JSON.stringify([...names]));

/** The tables and columns that these questions need: {table: [column]}. */
export function neededBy(questions) {
  const needed = {};
  for (const { reads } of questions)
    for (const [table, columns] of Object.entries(reads))
      needed[table] = [...new Set([...(needed[table] ?? []), ...columns])];
  return needed;
}

/** Returns the questions for `POST /runs`: nothing if only the catalog is selected. */
export function selectionOf(questions, names) {
  const selected = questions.filter(({ name }) => names.has(name));
  const isCatalog = questions.every(({ name, builtin }) => builtin === names.has(name));
  if (isCatalog) return {};
  const definitions = selected.filter(({ builtin }) => !builtin).map(({ definition }) => definition);
  return { ask: selected.map(({ name }) => name), ...(definitions.length && { definitions }) };
}
