// Draws a chart of Kopitiam: Vega-Lite with expressions interpreted, so that a page may forbid eval.
// vendor/vega.min.js and vendor/vega-lite.min.js are loaded before, as plain scripts.
import { expressionInterpreter } from "./vendor/vega-interpreter.min.js";

/**
 * @param {HTMLElement} element  takes the chart; its width is the chart's
 * @param {object} spec          one of the *.vl.json files
 * @param {object[]} rows        as chart_rows() gives them
 * @param {object} theme         `light` or `dark` of themes.json
 * @returns the view; call its finalize() before drawing into the same element again
 */
export async function drawChart(element, spec, rows, theme) {
  const { spec: compiled } = vegaLite.compile({ ...spec, datasets: { rows } }, { config: theme });
  const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
    expr: expressionInterpreter,
    renderer: "svg",
    container: element,
    hover: true,
  });
  await view.runAsync();
  return view;
}
