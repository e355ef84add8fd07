// A table that is loaded page by page: the browser holds only the visible rows.
import { fill, h, say } from "../dom.js";
import { count } from "../format.js";

/**
 * @param caption   what the table is about
 * @param columns   [{title, cell(row) → text or element, isFigure}], or a function that gives them
 * @param load      ({offset, limit, search}) → {rows, matched} or {rows, more}
 */
export function pagedTable({ caption, columns, load, limit = 20, searchLabel = null, empty = "No rows." }) {
  const view = { offset: 0, search: "" };
  const columnsNow = () => (typeof columns === "function" ? columns() : columns);
  const body = h("tbody");
  const heading = h("tr");
  const table = h("table", {}, h("caption", {}, caption), h("thead", {}, heading), body);
  const place = h("span", { class: "soft", "aria-live": "polite" });
  const back = h(
    "button",
    { type: "button", class: "small", "aria-label": "Previous page", onclick: () => turn(-limit) },
    "←",
  );
  const forth = h(
    "button",
    { type: "button", class: "small", "aria-label": "Next page", onclick: () => turn(limit) },
    "→",
  );
  const leaf = h("div", { class: "leaf" }, place, back, forth);
  const element = h(
    "div",
    { class: "paged" },
    searchLabel && searchField(),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table),
    leaf,
  );
  let asking = 0;
  let isTurning = false;

  function searchField() {
    let waiting = null;
    const input = h("input", {
      type: "search",
      "aria-label": searchLabel,
      placeholder: searchLabel,
      maxlength: 200,
      oninput: () => {
        clearTimeout(waiting);
        waiting = setTimeout(
          () => (Object.assign(view, { offset: 0, search: input.value.trim() }), show()),
          200,
        );
      },
    });
    return h("div", { class: "search" }, input);
  }

  /** Loads one page at a time: only a loaded page shows whether there is another. */
  async function turn(step) {
    if (isTurning) return;
    isTurning = true;
    view.offset = Math.max(0, view.offset + step);
    await show();
    isTurning = false;
  }

  async function show() {
    const mine = ++asking;
    element.setAttribute("aria-busy", "true");
    try {
      const page = await load({ ...view, limit });
      if (mine === asking) draw(page);
    } catch (error) {
      if (mine === asking && error.name !== "AbortError") say(place, error.message);
    } finally {
      if (mine === asking) element.removeAttribute("aria-busy");
    }
  }

  function draw({ rows, matched, more }) {
    const drawn = columnsNow();
    const cells = (row) =>
      drawn.map(({ cell, isFigure }) => h("td", { class: isFigure ? "figure" : null }, cell(row)));
    fill(
      heading,
      drawn.map(({ title, isFigure }) => h("th", { scope: "col", class: isFigure ? "figure" : null }, title)),
    );
    fill(
      body,
      rows.map((row) => h("tr", {}, cells(row))),
    );
    if (!rows.length)
      fill(
        body,
        h(
          "tr",
          {},
          h("td", { colspan: drawn.length, class: "soft" }, view.search ? "Nothing like that." : empty),
        ),
      );
    const last = view.offset + rows.length;
    const whole = matched === undefined ? "" : ` of ${count(matched)}`;
    say(place, rows.length ? `${count(view.offset + 1)}–${count(last)}${whole}` : "");
    back.disabled = view.offset === 0;
    forth.disabled = matched === undefined ? !more : last >= matched;
    leaf.hidden = back.disabled && forth.disabled;
  }

  return { element, show };
}

/** A table that is small enough to be there at once. */
export function plainTable(caption, titles, rows) {
  const head = titles.map(({ title, isFigure }) =>
    h("th", { scope: "col", class: isFigure ? "figure" : null }, title),
  );
  const line = (cells) =>
    cells.map((cell, i) =>
      i ? h("td", { class: titles[i].isFigure ? "figure" : null }, cell) : h("th", { scope: "row" }, cell),
    );
  const body = rows.map((cells) => h("tr", {}, line(cells)));
  const table = h(
    "table",
    {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, head)),
    h("tbody", {}, body),
  );
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, table);
}
