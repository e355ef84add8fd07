// The heading that a page begins with; whoever came here by keyboard goes on from it.
import { fill, h } from "../dom.js";

export function title(main, text, ...beside) {
  document.title = `${text} · Kopitiam`;
  const heading = h("h1", { tabindex: "-1" }, text);
  fill(main, h("div", { class: "title" }, heading, ...beside));
  if (document.body.dataset.entered) heading.focus({ preventScroll: true });
  document.body.dataset.entered = "yes";
  scrollTo(0, 0);
  return heading;
}
