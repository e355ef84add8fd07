// One data set: its months as a calendar, its versions and what each of them changed, its files.
import { changesText, dataPlace, dataSet } from "../data.js";
import { h } from "../dom.js";
import { bytes, count, moment, plural } from "../format.js";
import { calendarOf } from "../parts/calendar.js";
import { nameOf } from "../parts/cells.js";
import { confirmed } from "../parts/dialogs.js";
import { card } from "../parts/marks.js";
import { pagedTable } from "../parts/table.js";
import { rename, title } from "../parts/title.js";
import { gateway, patiently } from "../session.js";

export const missing = [
  "No such data set",
  "It may have been dropped, or it belongs to another token. Or this version is not kept any more.",
];

export async function show(main, { id: name, query, signal }) {
  const heading = title(main, name);
  const owner = query.get("owner") ?? "";
  const detail = await dataSet(name, { version: query.get("version"), owner }, signal);
  const { version, versions, files } = detail;
  const isNewest = version === (versions[0]?.version ?? 0);
  const flaw = h("p", { class: "flaw", role: "alert" });
  const place = (page) => dataPlace(name, { version: isNewest ? null : version, owner }, page);
  const drop = () => dropped(name, owner, signal).catch((error) => (flaw.textContent = `It could not be dropped: ${error.message}.`));
  const actions = h(
    "div",
    { class: "buttons" },
    version ? h("a", { class: "button main", href: place("/ask") }, "Ask") : null,
    version ? h("a", { class: "button", href: place("/sql") }, "SQL") : null,
    h("a", { class: "button", href: `#/upload?${new URLSearchParams({ data: name })}` }, "Add files"),
    h("button", { type: "button", class: "quiet danger", onclick: drop }, "Drop"),
  );
  rename(heading, name, actions);
  main.append(h("p", { class: "soft lead" }, summary(detail, isNewest)), flaw);
  if (!version) return;
  const shown = versions.find((one) => one.version === version);
  main.append(
    card("Months", calendarOf(files, shown)),
    card("Versions", versionsTable(detail, owner)),
    ...(versions.some((one) => one.version < version) ? [card("What changed", sinceForm(detail, owner))] : []),
    card(`Files of version ${version}`, filesTable(files)),
  );
}

function summary({ version, files, created_at }, isNewest) {
  if (!version) return "Nothing was sent completely yet: there is no version to ask.";
  const rows = files.reduce((sum, file) => sum + file.rows, 0);
  return `Version ${count(version)}${isNewest ? ", the newest" : ""}: ${plural(files.length, "file")}, ${plural(rows, "row")}. Since ${moment(created_at)}.`;
}

async function dropped(name, owner, signal) {
  const text = `All versions and files of ${name}, its runs and their answers are deleted. This cannot be undone. Type its name to confirm.`;
  if (!(await confirmed(`Drop ${name}?`, text, "Drop it", name))) return;
  const path = `/data/${name}?${new URLSearchParams(owner && { owner })}`;
  await patiently(() => gateway.json("DELETE", path, { signal }), signal);
  location.hash = "#/data";
}

function versionsTable({ name, version: shown, versions }, owner) {
  const row = ({ version, run, created_at, changes, added, replaced }) => {
    const isShown = version === shown;
    const link = h("a", { href: dataPlace(name, { version, owner }), "aria-current": isShown ? "true" : null }, `Version ${count(version)}`);
    const names = [...added.map((path) => `${path} added`), ...replaced.map((path) => `${path} replaced`)];
    const files = h("details", {}, h("summary", {}, "Files"), h("ul", { class: "plain" }, names.map((text) => h("li", {}, h("bdi", {}, text)))));
    return h(
      "tr",
      { class: isShown ? "chosen" : null },
      h("th", { scope: "row" }, link, isShown ? h("em", { class: "soft" }, " shown here") : null),
      h("td", {}, moment(created_at)),
      h("td", {}, changesText(changes), names.length ? files : null),
      h("td", {}, h("a", { href: `#/runs/${run}` }, h("code", {}, run.slice(0, 8)))),
    );
  };
  const heads = ["Version", "Made", "What it changed", "By run"].map((text) => h("th", { scope: "col" }, text));
  const caption = h("caption", { class: "unseen" }, "Versions, newest first");
  const table = h("table", { class: "versions" }, caption, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, versions.map(row)));
  return h("div", { class: "scroll" }, table);
}

/** Leads to the form that asks both versions with the same questions. */
function sinceForm({ name, version, versions }, owner) {
  const earlier = versions.filter((one) => one.version < version);
  const since = h("select", { id: "since" }, earlier.map((one) => h("option", { value: one.version }, `version ${count(one.version)}, ${moment(one.created_at)}`)));
  const go = (event) => {
    event.preventDefault();
    location.hash = dataPlace(name, { version, since: since.value, owner }, "/ask");
  };
  return h(
    "form",
    { onsubmit: go },
    h("p", { class: "soft" }, "Both versions are asked the same questions, and their answers stand side by side."),
    h("div", { class: "field" }, h("label", { for: "since" }, `From which version to version ${count(version)}`), since),
    h("p", { class: "buttons" }, h("button", {}, "Compare the answers")),
  );
}

function filesTable(files) {
  const columns = [
    { title: "Table", cell: ({ table }) => h("code", {}, table) },
    { title: "File", cell: ({ name }) => nameOf(name) },
    { title: "Rows", cell: ({ rows }) => count(rows), isFigure: true },
    { title: "Rejected", cell: ({ rejected }) => count(rejected), isFigure: true },
    { title: "Size", cell: (file) => bytes(file.bytes), isFigure: true },
    { title: "Columns kept", cell: (file) => h("span", { class: "names soft" }, file.columns.join(", ")) },
  ];
  const load = async ({ offset, limit, search }) => {
    const matching = files.filter(({ table, name }) => `${table}/${name}`.toLowerCase().includes(search.toLowerCase()));
    return { rows: matching.slice(offset, offset + limit), matched: matching.length };
  };
  const table = pagedTable({ caption: "Files", columns, load, limit: 15, searchLabel: "Search these files" });
  void table.show();
  return h("div", { class: "rows" }, table.element);
}
