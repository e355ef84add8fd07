// Charts, drawn by the library that comes with the package, in the colours of the page.
import { fill, h } from "../dom.js";

const CHARTS = new URL("../charts/", import.meta.url);
const drawn = new Map(); // element → {name, rows, view}
let library = null;

/** Loads the library when the first chart is wanted, and only then. */
function loaded() {
  library ??= (async () => {
    await script("vendor/vega.min.js");
    await script("vendor/vega-lite.min.js");
    const [{ drawChart }, themes] = await Promise.all([
      import(new URL("charts.js", CHARTS)),
      json("themes.json"),
    ]);
    return { drawChart, themes };
  })();
  return library;
}

export async function draw(element, name, rows) {
  const before = drawn.get(element);
  if (before && JSON.stringify(before.rows) === JSON.stringify(rows)) return;
  drawn.set(element, { name, rows, view: null });
  before?.view?.finalize();
  if (!rows.length) return void fill(element, h("p", { class: "soft" }, "No rows to draw."));
  const [{ drawChart, themes }, spec] = await Promise.all([loaded(), json(`${name}.vl.json`)]);
  if (!element.isConnected || drawn.get(element).rows !== rows) return;
  fill(element);
  drawn.get(element).view = await drawChart(
    element,
    spec,
    rows,
    coloured(themes[isDark() ? "dark" : "light"]),
  );
}

export function forget() {
  for (const { view } of drawn.values()) view?.finalize();
  drawn.clear();
}

document.addEventListener("theme", () => {
  for (const [element, { name, rows }] of [...drawn]) {
    drawn.get(element).view?.finalize();
    drawn.delete(element);
    if (element.isConnected) void draw(element, name, rows);
  }
});

function isDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Single bars take the accent of the page; colours that tell things apart stay as they are. */
function coloured(theme) {
  const colour = getComputedStyle(document.querySelector(".brand")).color;
  const font = getComputedStyle(document.body).fontFamily;
  return { ...theme, font, bar: { ...theme.bar, color: colour } };
}

function script(file) {
  return new Promise((resolve, reject) => {
    const element = h("script", {
      src: new URL(file, CHARTS),
      onload: resolve,
      onerror: () => reject(new Error(`${file} did not come`)),
    });
    document.head.append(element);
  });
}

const read = new Map();
function json(file) {
  if (!read.has(file))
    read.set(
      file,
      fetch(new URL(file, CHARTS)).then((response) => response.json()),
    );
  return read.get(file);
}
