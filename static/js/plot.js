// A card with one plot: a title, a menu, a canvas with a cursor, and a note for screen readers.
// Subclasses have plan(): {tables, series} for uPlot.join, describe(): the text of the note, and
// whyEmpty(): why there are no points; empty if there are some.
import { axisName, axisOptions, endsAround, placeText } from "./axis.js";
import { startMenu } from "./chart_menu.js";
import { colour } from "./colours.js";
import { steer } from "./steering.js";
import { showTooltip } from "./tooltip.js";
import { formatOf, titleOf } from "./titles.js";

const HEIGHT = 260;
const AROUND = 150; // pixels of title and legend on a full screen
const NEAR = 60; // pixels from the cursor to a point whose value is shown
const RIGHT = 28; // pixels: half of the last label of the x axis

export class Plot {
  // `charts` has what all charts share: view {smooth, log, zoom}, axis, unit, setLog(name, isOn) and
  // zoomTo(window).
  constructor(charts, name, template) {
    this.charts = charts;
    this.name = name;
    this.title = titleOf(name);
    this.format = formatOf(name);
    this.card = template.content.firstElementChild.cloneNode(true);
    this.card.dataset.chart = name;
    this.body = this.card.querySelector(".chart-body");
    this.card.querySelector(".card-title").textContent = this.title;
    const log = this.card.querySelector("[data-log-scale]");
    log.checked = this.isLog;
    log.addEventListener("change", () => charts.setLog(name, log.checked));
    startMenu(this);
    this.body.addEventListener("keydown", (event) => steer(this, event));
    this.body.addEventListener("blur", () => this.plot?.setCursor({ left: -10, top: -10 }));
  }

  get isLog() {
    return this.charts.view.log.has(this.name);
  }

  mount() {
    this.isMounted = true;
    this.rebuild();
  }

  // New series, colours or axes: uPlot is made anew.
  rebuild() {
    if (!this.isMounted) return;
    const { tables, series } = this.plan();
    this.plot?.destroy();
    this.shape = shapeOf(series);
    this.plot = new uPlot(this.options(series), uPlot.join(tables), this.body);
    this.startLegend(series);
    this.note();
  }

  // What a curve is called; its label tells it apart.
  nameOf(label) {
    return label;
  }

  draw() {
    if (!this.isMounted) return;
    const { tables, series } = this.plan();
    if (shapeOf(series) !== this.shape) return this.rebuild();
    this.plot.setData(uPlot.join(tables));
    this.note();
  }

  resize() {
    this.plot?.setSize({ width: this.body.clientWidth, height: this.height });
  }

  get height() {
    return document.fullscreenElement === this.card ? Math.max(HEIGHT, innerHeight - AROUND) : HEIGHT;
  }

  options(series) {
    const { axis, unit, view } = this.charts;
    const ink = colour("--tblr-secondary-color"), line = colour("--tblr-border-color");
    const look = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px 'Inter Variable', sans-serif" };
    return {
      width: this.body.clientWidth,
      height: this.height,
      padding: [12, RIGHT, 0, 0],
      scales: {
        x: { time: axis === "time", range: (plot, low, high) => view.zoom ?? endsOf(plot.data[0], axis) ?? [low, high] },
        y: { distr: this.isLog ? 3 : 1 },
      },
      axes: [
        { ...look, ...axisOptions(axis) },
        { ...look, size: 68, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : this.format(tick))) },
      ],
      series: [
        { label: axisName(axis, unit), value: (_, x) => placeText(axis, x) },
        ...series.map((each) => ({ ...each, value: (_, y) => (y == null ? "–" : this.format(y)) })),
      ],
      legend: { live: true },
      cursor: this.cursor(),
      hooks: { setSelect: [() => this.zoomToSelection()], setCursor: [() => this.point()] },
    };
  }

  // One cursor for all charts: each shows its values at the same place.
  cursor() {
    const isShared = (type) => type === "mousemove" || type === "mouseleave";
    return {
      y: false,
      points: { size: 7 },
      hover: { skip: [undefined, null], prox: NEAR },
      drag: { x: true, y: false, setScale: false, dist: 5 },
      bind: { dblclick: () => () => this.charts.zoomTo(null) },
      sync: { key: "charts", scales: ["x", null], filters: { pub: isShared, sub: () => true } },
    };
  }

  zoomToSelection() {
    const { left, width } = this.plot.select;
    if (!width) return;
    this.plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    this.charts.zoomTo([this.plot.posToVal(left, "x"), this.plot.posToVal(left + width, "x")]);
  }

  get isLeading() {
    return this.card.matches(":hover") || this.body === document.activeElement;
  }

  point() {
    showTooltip(this, this.isLeading ? this.readings() : null);
  }

  // The values at the cursor, of each curve at its nearest point: {place, values}, or null.
  readings() {
    const { idx, idxs } = this.plot.cursor;
    if (idx == null || this.plot.cursor.left < 0) return null;
    const values = [];
    this.plot.series.forEach(({ label, isQuiet, show, ink }, i) => {
      const value = i && show && !isQuiet ? this.plot.data[i][idxs[i]] : null;
      if (value != null) values.push({ label, name: this.nameOf(label), ink, text: this.format(value) });
    });
    const { axis, unit } = this.charts;
    return { place: `${axisName(axis, unit)} ${placeText(axis, this.plot.data[0][idx])}`, values };
  }

  // The newest of some points, as text.
  newestOf(points) {
    const { step, value } = points.reduce((a, b) => (b.step >= a.step ? b : a));
    return `${value === null ? "not finite" : this.format(value)} at step ${step}`;
  }

  // The names in the legend hide and show their curves, also by the keyboard.
  startLegend(series) {
    const rows = this.body.querySelectorAll(".u-legend .u-series");
    series.forEach(({ isQuiet }, i) => rows[i + 1] && (rows[i + 1].hidden = Boolean(isQuiet)));
    [...rows].slice(1).forEach((row) => {
      const name = row.querySelector("th");
      name.tabIndex = 0;
      name.setAttribute("role", "button");
      name.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        name.click();
      });
    });
  }

  // Why nothing is drawn; empty if something is.
  get emptiness() {
    if (this.plot.data.slice(1).some((values) => values.some((value) => value != null))) return "";
    if (this.whyEmpty()) return this.whyEmpty();
    return this.isLog ? "No positive values for a logarithmic scale." : "No finite values: only NaN or infinity.";
  }

  // For those who do not see the picture; and for all, why there is none.
  note() {
    const { emptiness } = this, text = [this.describe(), emptiness].filter(Boolean).join(". ");
    this.card.querySelector(".chart-note").textContent = text;
    const canvas = this.body.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Curve of ${this.name}. ${text}`);
    this.body.setAttribute("aria-label", `Chart of ${this.title}. Arrow keys move the cursor, + and - zoom.`);
    const empty = this.card.querySelector(".chart-empty");
    empty.hidden = !emptiness;
    empty.textContent = emptiness;
  }
}

const shapeOf = (series) => JSON.stringify(series.map(({ label, stroke, points }) => [label, stroke, points?.show]));

// The ends of an axis with a single place; undefined with more, or none.
const endsOf = (places, axis) => (places.length === 1 ? endsAround(axis, places[0]) : undefined);

// A logarithmic scale has no place for values that are not positive.
export const onScale = (value, isLog) => (isLog && value !== null && value <= 0 ? null : value);
