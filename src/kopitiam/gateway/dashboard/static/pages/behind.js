// The rows behind one row of an answer: a run over the same version of the data set lists them.
import { dataPlace } from "../data.js";
import { fill, h } from "../dom.js";
import { follow } from "../follow.js";
import { count } from "../format.js";
import { answersOf } from "../parts/answers.js";
import { card } from "../parts/marks.js";
import { title } from "../parts/title.js";
import { words } from "../progress.js";
import { gateway, patiently } from "../session.js";

export async function show(main, { id: run, other: answer, query, signal }) {
  const back = h("a", { class: "button", href: `#/runs/${run}` }, "The answers");
  title(main, "The rows behind a figure", back);
  const place = h("div", { class: "stack" }, h("p", { class: "soft", role: "status" }, "Loading…"));
  main.append(place);
  try {
    await list();
  } catch (error) {
    if (signal.aborted || ![409, 422].includes(error.status)) throw error;
    fill(place, whyNot(error));
  }

  async function list(key = null) {
    const path = `/runs/${run}/results/${answer}/rows-behind?${new URLSearchParams(query.getAll("key").map((text) => ["key", text]))}`;
    const request = await patiently(() => gateway.get(path, signal), signal);
    const body = key ? { ...request, idempotency_key: key } : request;
    const opened = await patiently(() => gateway.json("POST", "/runs", { body, signal }), signal);
    const answers = answersOf(opened.run, signal);
    fill(place, origin(request.data, opened.run), answers.element);
    answers.wait("The rows are being listed…");
    const status = await follow(opened, (next) => answers.wait(words(next)), signal);
    if (signal.aborted) return;
    if (status.state === "done") return answers.show(false);
    fill(place, failed(status, () => list(`${request.idempotency_key.slice(0, 60)}-${Date.now()}`)));
  }
}

function origin({ name, version }, run) {
  return h(
    "p",
    { class: "soft lead" },
    "From data set ",
    h("a", { href: dataPlace(name, { version }) }, `${name}, version ${count(version)}`),
    ". A run of its own lists them: ",
    h("a", { href: `#/runs/${run}` }, h("code", {}, run.slice(0, 8))),
    ".",
  );
}

function failed(status, again) {
  return card(
    "The rows could not be listed",
    h("p", { class: "flaw", role: "alert" }, h("bdi", {}, words(status))),
    h("p", { class: "buttons" }, h("button", { type: "button", class: "main", onclick: again }, "List them again")),
  );
}

function whyNot({ word, message }) {
  if (word !== "no_data_set") return card("These rows cannot be listed", h("p", { class: "flaw", role: "alert" }, h("bdi", {}, message)));
  return card(
    "These rows are gone",
    h("p", {}, "This run is not over a data set: its files were removed when its answers were out."),
    h("p", {}, "Send them once more as a data set, and each figure leads to its rows: ", h("a", { href: "#/upload" }, "New upload"), "."),
  );
}
