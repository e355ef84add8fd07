// A form for the questions of a run and their parameters.
import { fill, h } from "../dom.js";
import { selectionOf } from "../questions.js";
import { nameOf } from "./cells.js";

/**
 * @param values    the parameters at first: {years, hours, min_amount, top}
 * @param label     the label at first; null if the form has none
 * @param before    what stands above the parameters, below the questions
 * @param start     the text of the button
 * @param onChoice  called when other questions are chosen
 * @param open      ({label, questions, idempotency_key}) → a promise; its error is shown
 */
export function askForm({ values, label = "", before = null, start: text, isMain = true, onChoice, open }) {
  const { years, hours, min_amount, top } = values;
  const flaw = h("p", { class: "flaw", role: "alert" });
  const start = h("button", { class: isMain ? "main" : null }, text);
  const choices = h("fieldset");
  const form = h(
    "form",
    { onsubmit: (event) => (event.preventDefault(), submit()) },
    field("label", "Label", label, { maxlength: 200, placeholder: "A name to find it by, such as Penang, January" }),
    choices,
    before,
    h(
      "details",
      {},
      h("summary", {}, "Parameters"),
      h(
        "div",
        { class: "fields" },
        field("first-year", "From year", years[0], { type: "number", min: 1, max: 9998 }),
        field("last-year", "To year", years[1], { type: "number", min: 1, max: 9998 }),
        field("opening", "Opens", hours[0], { pattern: "\\d\\d:\\d\\d:\\d\\d" }),
        field("closing", "Closes (inclusive)", hours[1], { pattern: "\\d\\d:\\d\\d:\\d\\d" }),
        field("least", "Least amount (RM)", min_amount, { inputmode: "decimal" }),
        field("top", "Places of a rank", top, { type: "number", min: 1, max: 100000 }),
      ),
    ),
    flaw,
    h("p", { class: "buttons" }, start),
  );
  let key = freshKey(); // a repeated request opens no second run, unless something was changed
  form.addEventListener("input", () => (key = freshKey()));
  const value = (id) => form.querySelector(`#${id}`).value.trim();
  let offer = { questions: [], names: new Set() };

  async function submit() {
    start.disabled = true;
    fill(flaw);
    const questions = {
      years: [Number(value("first-year")), Number(value("last-year"))],
      hours: [value("opening"), value("closing")],
      min_amount: value("least"),
      top: Number(value("top")),
      ...selectionOf(offer.questions, offer.names),
    };
    try {
      await open({ label: value("label"), questions, idempotency_key: key });
    } catch (error) {
      fill(flaw, error.message);
      start.disabled = false;
    }
  }

  return {
    element: form,
    allow: (isSound) => (start.hidden = !isSound),
    /** Offers these questions; `names` are the chosen ones, and change with the boxes. */
    offer(questions, names, note) {
      offer = { questions, names };
      const onchange = (name, isChosen) => {
        if (isChosen) names.add(name);
        else names.delete(name);
        key = freshKey();
        onChoice?.(names);
      };
      fill(choices, h("legend", {}, "Questions"), boxes(questions, names, onchange), note);
    },
  };
}

export const field = (id, label, value, attributes = {}) =>
  h("div", { class: "field" }, h("label", { for: id }, label), h("input", { id, value, ...attributes }));

const freshKey = () =>
  [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

function boxes(questions, names, onchange) {
  const box = ({ name, title, builtin }) => {
    const id = `ask-${name}`;
    const change = ({ target }) => onchange(name, target.checked);
    const input = h("input", { type: "checkbox", id, checked: names.has(name), onchange: change });
    return h("li", {}, input, h("label", { for: id }, nameOf(title), builtin ? null : h("em", { class: "soft" }, " yours")));
  };
  return h("ul", { class: "choices" }, questions.map(box));
}
