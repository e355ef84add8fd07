// All data sets, with their newest version.
import { dataPlace } from "../data.js";
import { fill, h } from "../dom.js";
import { count, moment } from "../format.js";
import { plainTable } from "../parts/table.js";
import { title } from "../parts/title.js";
import { gateway, patiently } from "../session.js";

export async function show(main, { signal }) {
  title(main, "Data sets", h("a", { class: "button main", href: "#/upload" }, "New upload"));
  const place = h("div", { class: "card" }, h("p", { class: "soft" }, "Loading…"));
  main.append(place);
  const { data_sets: found } = await patiently(() => gateway.get("/data", signal), signal);
  fill(place, found.length ? tableOf(found) : nothing());
}

function tableOf(found) {
  const hasOthers = new Set(found.map(({ owner }) => owner)).size > 1; // only an administrator sees those of others
  const titles = [
    { title: "Data set" },
    ...(hasOthers ? [{ title: "Owner" }] : []),
    { title: "Newest version", isFigure: true },
    { title: "Versions kept", isFigure: true },
    { title: "Files", isFigure: true },
    { title: "Rows", isFigure: true },
    { title: "Since" },
  ];
  const row = ({ name, owner, version, versions, files, rows, created_at }) => [
    h("a", { href: dataPlace(name, { owner }) }, name),
    ...(hasOthers ? [h("bdi", {}, owner)] : []),
    version ? count(version) : "not yet",
    count(versions),
    count(files),
    count(rows),
    moment(created_at),
  ];
  return plainTable("Data sets", titles, found.map(row));
}

const nothing = () =>
  h(
    "div",
    { class: "empty" },
    h("h2", {}, "No data sets yet"),
    h("p", {}, "A data set keeps the files that were sent: later only new and changed files are sent, and other questions can be asked."),
    h("p", {}, h("a", { class: "button main", href: "#/upload" }, "Upload a folder as a data set")),
    h("p", { class: "soft" }, "Or from a terminal: ", h("code", {}, `kopi submit FOLDER --data NAME --server ${location.origin}`)),
  );
