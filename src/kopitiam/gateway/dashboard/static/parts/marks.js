// Small marks that several pages use: a state, a bar of progress, a card.
import { h } from "../dom.js";

export function badge(state, text) {
  return h("span", { class: `badge ${state}` }, text);
}

/** A progress bar; without a share it is indeterminate. */
export function bar(label) {
  return h(
    "div",
    { class: "bar", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 },
    h("i", {}),
  );
}

export function showShare(element, state, share) {
  element.dataset.state = state;
  element.classList.toggle("unknown", share === null && state === "open");
  if (share === null) element.removeAttribute("aria-valuenow");
  else element.setAttribute("aria-valuenow", Math.floor(share * 100));
  element.firstChild.style.setProperty("--share", share ?? 0);
}

export function card(heading, ...children) {
  const id = `card-${heading.toLowerCase().replaceAll(/\W+/g, "-")}`;
  return h("section", { class: "card", "aria-labelledby": id }, h("h2", { id }, heading), ...children);
}

/** Names and values, as a list that is read out in pairs. */
export function facts(pairs) {
  return h(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}
