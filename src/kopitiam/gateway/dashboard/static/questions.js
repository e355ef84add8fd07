// Questions that can be asked: those of the catalog, which the gateway tells, and own ones, which this browser keeps.
import { gateway, patiently } from "./session.js";

const TEXT_KEY = "kopitiam.questions"; // TOML
const CHOICE_KEY = "kopitiam.asked"; // names

export const ownText = () => localStorage.getItem(TEXT_KEY) ?? "";
export const keepOwnText = (text) => localStorage.setItem(TEXT_KEY, text);

export const catalog = (signal) => patiently(() => gateway.get("/questions", signal), signal);

/** {questions, flaws} of own questions as text; nothing is asked of the gateway for none. */
export function check(text, signal) {
  if (!text.trim()) return { questions: [], flaws: [] };
  const body = { toml: text };
  return patiently(() => gateway.json("POST", "/questions/check", { body, signal }), signal);
}

/** Everything that can be asked: [question], and the flaws that keep own ones out. */
export async function offered(signal) {
  const [{ questions }, own] = await Promise.all([catalog(signal), check(ownText(), signal)]);
  return { questions: [...questions, ...own.questions], flaws: own.flaws };
}

/** The names to be asked: as chosen before, as far as they are offered, or those of the catalog. */
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

/** What `POST /runs` is told: nothing if it is the catalog and no more. */
export function askedOf(questions, names) {
  const asked = questions.filter(({ name }) => names.has(name));
  const isCatalog = questions.every(({ name, builtin }) => builtin === names.has(name));
  if (isCatalog) return {};
  const definitions = asked.filter(({ builtin }) => !builtin).map(({ definition }) => definition);
  return { ask: asked.map(({ name }) => name), ...(definitions.length && { definitions }) };
}
