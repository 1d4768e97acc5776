// The values of a chart as a table: of the window that is shown, its latest places.
import { axisName, placeText } from "./axis.js";

const MAX_ROWS = 500;

export function showTable(chart) {
  const dialog = document.getElementById("chart-table");
  const { axis, unit } = chart.charts, { min, max } = chart.plot.scales.x;
  const shown = chart.plot.series.map(({ isQuiet }, i) => i).filter((i) => i && !chart.plot.series[i].isQuiet);
  const [xs, ...columns] = [0, ...shown].map((i) => chart.plot.data[i]);
  const inside = xs.map((x, i) => i).filter((i) => xs[i] >= min && xs[i] <= max && columns.some((ys) => ys[i] != null));
  dialog.querySelector(".dialog-title").textContent = chart.title;
  dialog.querySelector("[data-note]").hidden = inside.length <= MAX_ROWS;
  const names = [axisName(axis, unit), ...shown.map((i) => chart.nameOf(chart.plot.series[i].label))];
  dialog.querySelector("thead").replaceChildren(row("th", names));
  const text = (ys, i) => (ys[i] == null ? "" : chart.format(ys[i]));
  const rows = inside.slice(-MAX_ROWS).map((i) => row("td", [placeText(axis, xs[i]), ...columns.map((ys) => text(ys, i))]));
  dialog.querySelector("tbody").replaceChildren(...rows);
  dialog.showModal();
}

function row(tag, texts) {
  const shown = document.createElement("tr");
  for (const text of texts) {
    const cell = document.createElement(tag);
    cell.textContent = text;
    if (tag === "th") cell.scope = "col";
    shown.append(cell);
  }
  return shown;
}
