// The heading of a page; it takes the focus, so that keyboard users continue from it.
import { fill, h } from "../dom.js";

export function title(main, text, ...beside) {
  const heading = h("h1", { tabindex: "-1", dir: "auto" });
  fill(main, h("div", { class: "title" }, heading));
  rename(heading, text, ...beside);
  if (document.body.dataset.entered) heading.focus({ preventScroll: true });
  scrollTo(0, 0);
  return heading;
}

/** For a page that is shown before its name is known. */
export function rename(heading, text, ...beside) {
  document.title = `${text} · Kopitiam`;
  heading.textContent = text;
  heading.after(...beside);
}
