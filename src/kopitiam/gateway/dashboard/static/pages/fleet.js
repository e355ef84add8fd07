// The nodes: states, the leader, and failed revivals.
import { announce, fill, h, keyed, repeat, say } from "../dom.js";
import { duration, plural } from "../format.js";
import { badge } from "../parts/marks.js";
import { title } from "../parts/title.js";
import { gateway, now, patiently } from "../session.js";

const LOOK_SECONDS = 2;
const KINDS = { gateway: "Gateways", pipeline: "Pipelines", monitor: "Monitors", service: "Services" };
const TASKS = {
  gateway: "receive chunks and serve answers",
  pipeline: "Spark: filters, aggregators, maximizers, joiners",
  monitor: "liveness, election, barrier, revival",
  service: "run privately beside the nodes",
};

export async function show(main, { signal }) {
  title(main, "Fleet");
  const summary = h("p", { class: "soft lead" }, "Loading…");
  const alarms = h("div", { role: "alert" });
  const groups = h("div", { class: "fleet" });
  main.append(summary, alarms, groups);

  async function look() {
    const nodes = await patiently(() => gateway.get("/nodes", signal), signal);
    const alive = nodes.filter((node) => node.state === "alive").length;
    say(
      summary,
      nodes.length ? `${alive} of ${plural(nodes.length, "node")} alive` : "No node has reported yet.",
    );
    showAlarms(
      alarms,
      nodes.filter((node) => node.alarm),
    );
    const kinds = Object.keys(KINDS).filter((kind) => nodes.some((node) => node.kind === kind));
    keyed(
      groups,
      kinds,
      (kind) => kind,
      group,
      (element, kind) => {
        const own = nodes.filter((node) => node.kind === kind);
        keyed(element.list, own, (node) => node.name, tile, updateTile);
      },
    );
  }

  document.addEventListener("back", () => look().catch(() => {}), { signal });
  await repeat(LOOK_SECONDS, signal, look);
}

function group(kind) {
  const list = h("ul", { class: "nodes" });
  const element = h(
    "section",
    { "aria-labelledby": `kind-${kind}` },
    h("h2", { id: `kind-${kind}` }, KINDS[kind]),
    h("p", { class: "soft" }, TASKS[kind]),
    list,
  );
  element.list = list;
  return element;
}

function tile(node) {
  const parts = {
    state: h("span"),
    leader: h("span", { class: "crown", hidden: true }, "Leader"),
    facts: h("p", { class: "soft" }),
    alarm: h("p", { class: "flaw" }),
  };
  const element = h(
    "li",
    { class: "card node" },
    h("h3", {}, node.name, parts.leader),
    parts.state,
    parts.facts,
    parts.alarm,
  );
  element.parts = parts;
  return element;
}

function updateTile(element, node) {
  const { parts } = element;
  element.dataset.state = node.state;
  if (parts.state.dataset.state !== node.state) {
    parts.state.dataset.state = node.state;
    fill(parts.state, badge(node.state, node.state));
  }
  parts.leader.hidden = !node.leader;
  const facts = [
    node.host && `on ${node.host}`,
    `for ${duration(now() - node.since)}`,
    node.heard_seconds_ago === null ? null : `heartbeat ${duration(node.heard_seconds_ago)} ago`,
    node.epoch === null ? null : `epoch ${node.epoch}`,
    node.pid && `process ${node.pid}`,
    node.url?.replace(/^https?:\/\//, ""),
  ];
  say(parts.facts, facts.filter(Boolean).join(" · "));
  say(parts.alarm, node.alarm ?? "");
}

function showAlarms(place, alarmed) {
  const text = alarmed.map((node) => `${node.name}: ${node.alarm}`).join("\n");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  fill(
    place,
    alarmed.map((node) => h("p", { class: "banner bad" }, h("b", {}, node.name), ` ${node.alarm}`)),
  );
  if (text) announce(text);
}
