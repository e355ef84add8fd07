// Creates and updates elements. Text is always inserted as text, never as markup.

/** `h("p", {class: "soft", onclick: f}, "text", h("b", {}, "more"))`; a null child or attribute is left out. */
export function h(tag, attributes = {}, ...children) {
  return dressed(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dressed(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export function fill(place, ...children) {
  place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return place;
}

/** Changes the text only if it differs, so that a screen reader does not repeat it. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** One child for each item, kept while its key stays, so that focus and scroll position stay too. */
export function keyed(parent, items, keyOf, make, update) {
  const there = parent.keyedChildren ?? new Map();
  const next = new Map();
  items.forEach((item, position) => {
    const key = keyOf(item);
    const child = there.get(key) ?? make(item);
    update(child, item);
    if (parent.children[position] !== child) parent.insertBefore(child, parent.children[position] ?? null);
    next.set(key, child);
  });
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  parent.keyedChildren = next;
}

/** Announces a text to screen readers; emptied first, or the same text would not be read again. */
export function announce(text) {
  const news = document.getElementById("news");
  news.textContent = "";
  setTimeout(() => (news.textContent = text), 100);
}

/** Calls `work` again after a pause, until the signal aborts. */
export async function repeat(seconds, signal, work) {
  while (!signal.aborted) {
    if (!document.hidden) await work();
    await pause(seconds, signal);
  }
}

export function pause(seconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
