// The head of a run: state, progress, speed and errors.
import { changesText, dataPlace } from "../data.js";
import { fill, h, say } from "../dom.js";
import { bytes, count, duration, moment, percent, plural, short } from "../format.js";
import { Pace, STATES, figures, isOver, share, timeLeft, words } from "../progress.js";
import { now } from "../session.js";
import { isInterrupted, pace as uploadPace } from "../upload/uploads.js";
import { badge, bar, showShare } from "./marks.js";
import { rename } from "./title.js";

export function heading(name, status, cancel) {
  const state = h("span", { class: "state" });
  const end = h("button", { type: "button", class: "quiet danger", onclick: cancel }, "End this run");
  const again = h("a", { class: "button small", href: `#/runs/${status.run}/ask` }, "Ask again");
  rename(name, status.label || "Without a label", state, h("div", { class: "buttons" }, end, again));
  const sentence = h("p", { class: "sentence" });
  const meter = bar("Progress of the run");
  const pace = new Pace();
  const speed = h("p", { class: "soft speed" });
  const banner = h("div");
  const flaw = h("p", { class: "flaw", role: "alert" });
  const origin = h(
    "p",
    { class: "soft" },
    h("code", {}, status.run),
    ` · started ${moment(status.created_at)}`,
  );
  const data = h("p", {});
  return {
    element: h("div", { class: "head" }, origin, data, meter, sentence, speed, banner, flaw),
    complain: (text) => say(flaw, text),
    update(current, upload) {
      pace.look(current, now());
      if (state.dataset.state !== current.state) {
        state.dataset.state = current.state;
        fill(state, badge(current.state, STATES[current.state]));
      }
      end.hidden = isOver(current);
      again.hidden = current.state === "open";
      showData(data, current.data);
      const isSending = upload?.state === "sending" && current.state === "open";
      showShare(
        meter,
        current.state,
        isSending && upload.total ? upload.done / upload.total : share(current),
      );
      say(sentence, isSending ? sending(upload) : words(current));
      say(speed, isSending ? sendingSpeed(upload) : speedOf(current, pace));
      showWarning(banner, current, upload);
    },
  };
}

function sending({ done, total, table, resumed, unchanged, isReading }) {
  const share = `${bytes(done)} of ${bytes(total)} (${percent(total ? done / total : 0)})`;
  if (isReading) return `Comparing the files with the data set: ${share}`;
  const notes = [
    unchanged && `${plural(unchanged, "file")} not sent again`,
    resumed && `${plural(resumed, "chunk")} there already`,
  ].filter(Boolean);
  return [`Sending ${table ?? "…"}: ${share}`, ...notes].join(", ");
}

/** The data set of the run, with the version that it is about or makes. */
function showData(place, data) {
  const text = data && JSON.stringify(data);
  if (!data || place.dataset.text === text) return;
  place.dataset.text = text;
  const { name, version, changes, upload } = data;
  const link = h("a", { href: dataPlace(name, { version }) }, version ? `${name}, version ${count(version)}` : name);
  const news = upload && changes ? `: ${changesText(changes)}` : upload && !version ? ", which gets these files" : "";
  fill(place, "Data set ", link, news, ".");
}

function sendingSpeed(upload) {
  const seen = uploadPace(upload);
  return seen ? `${bytes(seen.rate)}/s · ${duration(seen.left)} left` : " ";
}

function speedOf(status, pace) {
  const rate = pace.rate(status, now());
  if (isOver(status)) return `${count(figures(status).durable)} rows · ${short(rate)} rows/s overall`;
  const left = timeLeft(status, rate);
  return `${short(rate)} rows/s${left === null ? "" : ` · ${duration(left)} left`} · ${duration(now() - status.created_at)} so far`;
}

function showWarning(place, status, upload) {
  const [kind, head, text] = warningOf(status, upload) ?? ["", "", ""];
  if (place.dataset.text === text + head) return;
  place.dataset.text = text + head;
  fill(
    place,
    head
      ? h(
          "div",
          { class: `banner ${kind}`, role: "alert" },
          h("b", {}, `${head} `),
          text,
          kind === "again" ? h("a", { href: "#/upload" }, " Choose the folder") : null,
        )
      : null,
  );
}

function warningOf(status, upload) {
  if (status.state === "failed") return ["bad", "This run failed.", status.error ?? "No reason was given."];
  if (status.state === "ended")
    return [
      "",
      "This run was ended by force.",
      `${status.error === "cancelled" ? "It was cancelled" : (status.error ?? "No reason was given")}. What was sent has been removed; there are no answers.`,
    ];
  if (upload?.state === "failed")
    return [
      "bad",
      "The upload stopped.",
      `${upload.error}. Repair the files and start a new run, or end this one.`,
    ];
  if (upload?.warning)
    return ["", "Waiting for the gateway.", `${upload.warning}; the upload resumes by itself.`];
  return status.state === "open" && !upload && isInterrupted(status.run)
    ? [
        "again",
        "This upload was interrupted.",
        "Drop the same folder again, and only what is missing is sent.",
      ]
    : null;
}
