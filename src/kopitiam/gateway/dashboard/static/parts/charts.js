// Charts, drawn by the library that comes with the package, in the colours of the page.
import { drawChart } from "../charts/charts.js";
import { fill, h, pause } from "../dom.js";

const CHARTS = new URL("../charts/", import.meta.url);
const AGAIN_SECONDS = 3;
const drawn = new Map(); // element → {name, rows, view}
const loading = new Map(); // file → what comes of it

/** The library is loaded when the first chart is wanted, and only then. */
const library = () =>
  once("library", async () => {
    await script("vendor/vega.min.js");
    await script("vendor/vega-lite.min.js");
  });

export async function draw(element, name, rows) {
  const before = drawn.get(element);
  if (before && JSON.stringify(before.rows) === JSON.stringify(rows)) return;
  const mine = { name, rows, view: null };
  drawn.set(element, mine);
  before?.view?.finalize();
  if (!rows.length) return void fill(element, h("p", { class: "soft" }, "No rows to draw."));
  const isOutdated = () => drawn.get(element) !== mine;
  try {
    const [themes, spec] = await Promise.all([json("themes.json"), json(`${name}.vl.json`), library()]);
    if (isOutdated()) return;
    fill(element);
    mine.view = await drawChart(element, spec, rows, coloured(themes[isDark() ? "dark" : "light"]));
    if (isOutdated()) mine.view.finalize();
  } catch (error) {
    if (!isOutdated()) void drawLater(element, name, rows, error);
  }
}

async function drawLater(element, name, rows, error) {
  forget(element);
  fill(element, h("p", { class: "soft" }, `The chart is not there yet: ${error.message}. Trying again…`));
  await pause(AGAIN_SECONDS);
  if (element.isConnected && !drawn.has(element)) await draw(element, name, rows);
}

/** A view that nobody sees any more must be told so, or it is kept with all its rows. */
export function forget(element) {
  drawn.get(element)?.view?.finalize();
  drawn.delete(element);
}

document.addEventListener("theme", () => {
  for (const [element, { name, rows }] of [...drawn]) {
    forget(element);
    void draw(element, name, rows);
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

const json = (file) =>
  once(file, async () => {
    const response = await fetch(new URL(file, CHARTS));
    if (!response.ok) throw new Error(`${file} did not come`);
    return response.json();
  });

/** Loaded once; what did not come is asked for again by the next who wants it. */
function once(file, load) {
  if (!loading.has(file)) loading.set(file, load());
  loading.get(file).catch(() => loading.delete(file));
  return loading.get(file);
}
