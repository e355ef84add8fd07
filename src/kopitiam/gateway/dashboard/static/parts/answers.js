// The answers together: what they are about, and whether they are provisional.
import { fill, h, keyed, say } from "../dom.js";
import { count, percent } from "../format.js";
import { gateway, patiently } from "../session.js";
import { answerOf } from "./answer.js";
import { download } from "./downloads.js";

const PROVISIONAL_SECONDS = 60; // a pipeline makes them, and may have other work

export function answersOf(run, signal) {
  const notice = h("div", { class: "notice", role: "status" });
  const place = h("div", { class: "answers" });
  const files = h("div", { class: "buttons" });
  const element = h(
    "section",
    { class: "answer-part", "aria-labelledby": "answers" },
    h("div", { class: "title" }, h("h2", { id: "answers" }, "Answers"), files),
    notice,
    place,
  );
  let shownAs = null;

  async function show(isProvisional) {
    const index = await patiently(() => indexOf(run, isProvisional, signal), signal);
    if (signal.aborted) return;
    if (shownAs !== index.provisional) {
      shownAs = index.provisional;
      fill(files, index.provisional ? null : wholeFiles(run));
    }
    element.classList.toggle("provisional", index.provisional);
    tellCoverage(notice, index);
    const showing = [];
    keyed(
      place,
      index.answers,
      ({ name }) => name,
      (view) => {
        const answer = answerOf(run, view, signal);
        answer.element.answer = answer;
        return answer.element;
      },
      (child, view) => showing.push(child.answer.show(view, index)),
    );
    await Promise.all(showing);
  }

  return { element, show, wait: (text) => fill(notice, h("p", { class: "soft" }, text)) };
}

function indexOf(run, isProvisional, signal) {
  const path = `/runs/${run}/results`;
  return isProvisional
    ? gateway.get(`${path}?provisional=true`, signal, PROVISIONAL_SECONDS)
    : gateway.get(path, signal);
}

function wholeFiles(run) {
  const path = `/runs/${run}/results`;
  return [
    download("Report", `${path}/report.html`, `kopitiam-${run}.html`),
    download("Excel", `${path}/results.xlsx`, `kopitiam-${run}.xlsx`),
    download("Summary", `${path}/summary.json`, "summary.json"),
  ];
}

function tellCoverage(notice, { provisional, summary, answers }) {
  if (!provisional) return void fill(notice, account(summary), unlisted(answers));
  const { processed, durable, expected } = summary.coverage;
  const whole = expected ?? durable;
  const share = whole ? percent(processed / whole) : "0 %";
  const of = expected === null ? `${count(durable)} rows received so far` : `${count(expected)} rows`;
  const text =
    notice.querySelector("p.coverage") ??
    fill(notice, h("p", { class: "coverage" }, h("b", {}, "Provisional. "), h("span", {}))).firstChild;
  say(
    text.lastChild,
    `These answers are about ${count(processed)} of ${of} (${share}), and change as more rows are processed.`,
  );
}

/** Why figures do not lead to the rows behind them, each reason once. */
function unlisted(answers) {
  const hasFigures = ({ columns, rows }) => rows > 0 && columns.some(({ role }) => role === "measure");
  const reasons = new Set(answers.filter(hasFigures).map((answer) => answer.unlisted));
  return [...reasons].filter(Boolean).map((reason) => h("p", { class: "soft" }, reason));
}

/** Rows read = rows used + rows rejected, always shown. */
function account({ rows, unmatched }) {
  const missing = Object.entries(unmatched)
    .filter(([, number]) => number)
    .map(([table, number]) => `${count(number)} in ${table}`);
  const text = `${count(rows.read)} rows read = ${count(rows.used)} used + ${count(rows.rejected)} rejected`;
  return h(
    "p",
    { class: "soft account" },
    text,
    missing.length ? ` · ids not found: ${missing.join(", ")}` : " · every id was found",
  );
}
