// One run, live: the path of its data, its tables, questions, rejected rows and answers.
import { announce, h, pause } from "../dom.js";
import { follow } from "../follow.js";
import { answersOf } from "../parts/answers.js";
import { confirmed } from "../parts/dialogs.js";
import { heading } from "../parts/heading.js";
import { card } from "../parts/marks.js";
import { dataPath } from "../parts/path.js";
import { questionsOf, rejectedOf, tablesOf } from "../parts/rundown.js";
import { title } from "../parts/title.js";
import { STATES, figures, isOver, words } from "../progress.js";
import { gateway, patiently } from "../session.js";
import { uploadOf } from "../upload/uploads.js";

const LEAST_BETWEEN = 4; // seconds between two requests for provisional answers
const PATIENCE_FACTOR = 4; // and this many times as long as the last one took: Spark has other work

export async function show(main, { id, signal }) {
  const name = title(main, "Run");
  const looking = h("p", { class: "soft" }, "Loading…");
  main.append(looking);
  let status = await patiently(() => gateway.get(`/runs/${id}`, signal), signal);
  const head = heading(name, status, cancel);
  const path = dataPath();
  const tables = tablesOf();
  const rejected = rejectedOf(id, signal);
  const answers = answersOf(id, signal);
  const questions = card("Questions of this run", questionsOf(status.questions, signal));
  const side = h("div", { class: "halves" }, card("Tables", tables.element), questions);
  const way = card("The path of the data", path.element);
  looking.replaceWith(head.element, way, side, rejected.element, answers.element);

  async function cancel() {
    const text = "What was sent is removed, and there will be no answers. Other runs are not affected.";
    if (!(await confirmed("End this run?", text, "End it"))) return;
    head.complain("");
    try {
      const ended = await patiently(() => gateway.json("DELETE", `/runs/${id}`), signal);
      uploadOf(id)?.stop();
      draw(ended);
    } catch (error) {
      if (!signal.aborted) head.complain(`The run could not be ended: ${error.message}.`);
    }
  }

  function draw(next) {
    const before = status.state;
    status = next;
    const upload = uploadOf(id);
    head.update(status, upload);
    path.update(status, upload);
    tables.update(status);
    rejected.update(status);
    if (before !== status.state)
      announce(`The run is ${STATES[status.state].toLowerCase()}: ${words(status)}`);
    if (status.state === "failed" || status.state === "ended") answers.element.hidden = true;
  }

  draw(status);
  document.addEventListener("upload", ({ detail }) => detail === id && draw(status), { signal });
  void showAnswers(answers, () => status, signal).catch(
    (error) => signal.aborted || answers.wait(error.message),
  );
  const ticking = setInterval(() => draw(status), 1000); // durations change without events
  signal.addEventListener("abort", () => clearInterval(ticking));
  await follow(status, draw, signal);
  clearInterval(ticking);
}

/** Shows provisional answers now and then while the run goes on, and the final ones at once. */
async function showAnswers(answers, current, signal) {
  if (!isOver(current())) answers.wait("The first answers come when the first rows are processed.");
  while (!signal.aborted && !isOver(current())) {
    const begun = Date.now();
    const isSending = current().data && current().state === "open"; // most rows of the data set are not in it yet
    const isWorthIt = !isSending && figures(current()).processed > 0 && !document.hidden;
    if (isWorthIt) await answers.show(true).catch(() => {}); // the next request may succeed
    const seconds = Math.max(LEAST_BETWEEN, (PATIENCE_FACTOR * (Date.now() - begun)) / 1000);
    for (const until = Date.now() + seconds * 1000; Date.now() < until && !isOver(current());)
      await pause(0.25, signal);
  }
  if (signal.aborted || current().state !== "done") return;
  answers.wait("Reading the answers…");
  await answers.show(false);
}
