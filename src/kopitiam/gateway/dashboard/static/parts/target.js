// Where an upload goes: into a data set, which keeps its files, or nowhere, so that they are removed after the answers.
import { h, say } from "../dom.js";
import { count, plural } from "../format.js";
import { gateway, patiently } from "../session.js";

const NAME = /^[a-z][a-z0-9_-]{0,39}$/;

/** `onChange` is called when another data set is named, or other columns are to be kept. */
export function targetFields({ name, onChange, signal }) {
  const known = h("datalist", { id: "data-sets" });
  const input = h("input", {
    id: "data-set",
    value: name,
    list: "data-sets",
    maxlength: 40,
    autocapitalize: "off",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "None: the files are removed when the answers are out",
    "aria-describedby": "data-set-help",
    onchange: () => onChange(),
  });
  const help = h("p", { class: "soft", id: "data-set-help" });
  const all = h("input", { type: "checkbox", id: "all-columns", onchange: () => onChange() });
  const columns = h(
    "p",
    { class: "choice" },
    all,
    h("label", { for: "all-columns" }, "Keep all columns and tables, for other questions later"),
  );
  const element = h("div", { class: "field" }, h("label", { for: "data-set" }, "Data set"), input, known, help, columns);
  const value = () => input.value.trim();
  void patiently(() => gateway.get("/data", signal), signal)
    .then(({ data_sets: sets }) => known.append(...sets.map((set) => h("option", { value: set.name }))))
    .catch(() => {}); // the names are a convenience

  return {
    element,
    /** The name of the data set; "" if there is none, or none that can be. */
    name: () => (NAME.test(value()) ? value() : ""),
    keepsAll: () => value() !== "" && all.checked,
    flaw: () =>
      value() && !NAME.test(value())
        ? "The name of a data set is a lowercase letter, then up to 39 of a to z, 0 to 9, - and _, such as penang."
        : null,
    /** `held` is the version that the data set has; null if it is new. */
    describe(held) {
      columns.hidden = !value();
      say(help, held ? grows(held) : value() ? "This data set is new." : "With a name, a folder is sent once, and can be asked again.");
    },
  };
}

const grows = ({ version, files }) =>
  `It has version ${count(version)} with ${plural(files.length, "file")}. Only files that are new or differ are sent; the others stay.`;
