// Two runs with the same questions side by side: for each answer, what is new, gone or has changed.
import { dataPlace } from "../data.js";
import { fill, h } from "../dom.js";
import { follow } from "../follow.js";
import { count, plural } from "../format.js";
import { nameOf } from "../parts/cells.js";
import { download } from "../parts/downloads.js";
import { card } from "../parts/marks.js";
import { pagedTable } from "../parts/table.js";
import { rename, title } from "../parts/title.js";
import { words } from "../progress.js";
import { catalog } from "../questions.js";
import { gateway, patiently } from "../session.js";

const COMPARE_SECONDS = 120; // large answers are read whole

export async function show(main, { id: before, other: after, signal }) {
  const heading = title(main, "What changed");
  const place = h("div", { class: "stack" }, h("p", { class: "soft" }, "Loading…"));
  main.append(place);
  const runs = await Promise.all([before, after].map((run) => patiently(() => gateway.get(`/runs/${run}`, signal), signal)));
  const report = `/runs/${after}/results/report.html?since=${before}`;
  rename(heading, headline(runs[1]), h("div", { class: "buttons" }, download("Report", report, `kopitiam-${after}-changes.html`)));
  const notes = runs.map(() => h("li"));
  fill(place, h("p", { class: "soft lead" }, sides(runs)), h("ul", { class: "plain", role: "status" }, notes));
  const wait = (status, at) => fill(notes[at], `${sideName(status)}: `, h("bdi", {}, words(status)));
  const ended = await Promise.all(
    runs.map((run, at) => (wait(run, at), follow(run, (status) => wait(status, at), signal))),
  );
  if (signal.aborted || ended.some(({ state }) => state !== "done")) return;
  notes[0].parentElement.remove();
  await compare(place, ended, signal);
}

async function compare(place, [before, after], signal) {
  const { questions } = await catalog(signal);
  const all = [...questions, ...(after.questions.definitions ?? [])];
  const path = `/runs/${after.run}/results/changes.json?since=${before.run}`;
  try {
    const changes = await patiently(() => gateway.get(path, signal, COMPARE_SECONDS), signal);
    const compared = all.filter(({ name }) => name in changes);
    place.append(...compared.map(({ name, title: text }) => changesCard(text, changes[name])));
  } catch (error) {
    if (signal.aborted) return;
    place.append(card("These runs cannot be compared", h("p", { class: "flaw", role: "alert" }, h("bdi", {}, error.message))));
  }
}

const sideName = ({ data, run }) => (data?.version ? `Version ${count(data.version)}` : `Run ${run.slice(0, 8)}`);
const headline = ({ data }) => (data ? `What changed in ${data.name}` : "What changed");

function sides([before, after]) {
  const link = (status) => h("a", { href: `#/runs/${status.run}` }, sideName(status));
  const data = after.data ? [" of data set ", h("a", { href: dataPlace(after.data.name) }, after.data.name)] : [];
  return ["From ", link(before), " to ", link(after), ...data, ", answer by answer."];
}

function changesCard(heading, { text, titles, figures, cells, left_out: leftOut }) {
  const columns = titles.map((name, at) => ({
    title: name || "Row",
    isFigure: figures.includes(at),
    cell: (row) => (at === 0 ? h("span", { class: `change ${row[0].split(" ")[0]}` }, row[0]) : figures.includes(at) ? row[at] : nameOf(row[at])),
  }));
  const load = async ({ offset, limit, search }) => {
    const matching = cells.filter((row) => row.some((cell) => cell.toLowerCase().includes(search.toLowerCase())));
    return { rows: matching.slice(offset, offset + limit), matched: matching.length };
  };
  const table = pagedTable({ caption: heading, columns, load, limit: 15, searchLabel: "Search these changes" });
  if (cells.length) void table.show();
  const more = leftOut ? h("p", { class: "soft" }, `${plural(leftOut, "more row")} differ; the files of both runs have all.`) : null;
  return h(
    "article",
    { class: "card rows", "aria-label": heading },
    h("h2", {}, nameOf(heading)),
    h("p", { class: "soft" }, `${text}.`),
    cells.length ? table.element : null,
    more,
  );
}
