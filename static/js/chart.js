// One chart: the live curve of each metric, smoothed before the raw one, retired points dashed.
import { colour, translucent } from "./colours.js";
import { chartOf, divide, epochAt, smooth } from "./series.js";

const HEIGHT = 260;
const PALETTE = ["--tblr-blue", "--tblr-orange", "--tblr-green", "--tblr-purple", "--tblr-red", "--tblr-teal"];

export class Chart {
  constructor(charts, name, template) {
    this.charts = charts;
    this.name = name;
    this.card = template.content.firstElementChild.cloneNode(true);
    this.card.dataset.chart = name;
    this.body = this.card.querySelector(".chart-body");
    const title = name.replaceAll("_", " ");
    this.card.querySelector(".card-title").textContent = title[0].toUpperCase() + title.slice(1);
    const log = this.card.querySelector("[data-log-scale]");
    log.checked = charts.view.log.has(name);
    log.addEventListener("change", () => charts.setLog(name, log.checked));
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
    const legend = this.body.querySelectorAll(".u-legend .u-series");
    series.forEach(({ isQuiet }, i) => (legend[i + 1].hidden = Boolean(isQuiet)));
    this.describe();
  }

  draw() {
    if (!this.isMounted) return;
    const { tables, series } = this.plan();
    if (shapeOf(series) !== this.shape) return this.rebuild();
    this.plot.setData(uPlot.join(tables));
    this.describe();
  }

  resize() {
    this.plot?.setSize({ width: this.body.clientWidth, height: HEIGHT });
  }

  // What is drawn: a table of (x, y) for each line, and how each looks.
  plan() {
    const { metrics, starts, view } = this.charts;
    const names = [...metrics.keys()].filter((name) => chartOf(name) === this.name).sort();
    const epochs = divide(metrics.get("epoch") ?? [], starts).live;
    const tables = [], series = [];
    const add = (points, values, look) => {
      const xs = points.map((point) => xOf(point, view.x, epochs));
      const usable = xs.map((x, i) => i).filter((i) => xs[i] !== null && (!i || xs[i] > xs[i - 1]));
      if (!usable.length) return;
      tables.push([usable.map((i) => xs[i]), usable.map((i) => onScale(values[i], this.isLog))]);
      series.push(look);
    };
    names.forEach((name, i) => {
      const ink = colour(PALETTE[i % PALETTE.length]);
      const { live, retired } = divide(metrics.get(name), starts);
      for (const points of retired) {
        const look = { label: `${name} (older)`, stroke: translucent(ink, 0.8), width: 1.5, dash: [5, 4], spanGaps: true, isQuiet: true };
        add(points, points.map((p) => p.value), look);
      }
      const raw = live.map((point) => point.value);
      if (view.smooth) {
        add(live, raw, { label: `${name} (raw)`, stroke: translucent(ink, 0.28), width: 1, isQuiet: true });
      }
      add(live, smooth(raw, view.smooth), { label: name, stroke: ink, width: 2, points: { show: live.length < 40, size: 5 } });
    });
    return tables.length ? { tables, series } : { tables: [[[0], [null]]], series: [{ label: this.name }] };
  }

  options(series) {
    const isTime = this.charts.view.x === "time";
    const ink = colour("--tblr-secondary-color"), line = colour("--tblr-border-color");
    const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px 'Inter Variable', sans-serif" };
    return {
      width: this.body.clientWidth,
      height: HEIGHT,
      padding: [12, 12, 0, 0],
      scales: { x: { time: isTime }, y: { distr: this.isLog ? 3 : 1 } },
      axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(tickText) }],
      series: [
        { label: this.charts.view.x, value: (_, x) => xText(x, isTime) },
        ...series.map((each) => ({ ...each, value: (_, y) => (y == null ? "–" : number(y)) })),
      ],
      legend: { live: true },
      cursor: { y: false, points: { size: 7 } },
    };
  }

  get isLog() {
    return this.charts.view.log.has(this.name);
  }

  // For those who do not see the picture.
  describe() {
    const parts = [];
    for (const [name, points] of this.charts.metrics) {
      if (chartOf(name) !== this.name || !points.length) continue;
      const newest = points.reduce((a, b) => (b.step >= a.step ? b : a));
      parts.push(`${name}: ${newest.value === null ? "not finite" : number(newest.value)} at step ${newest.step}`);
    }
    const text = parts.join("; ");
    this.card.querySelector(".chart-note").textContent = text;
    const canvas = this.body.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `Curve of ${this.name}. ${text}`);
  }
}

const shapeOf = (series) => JSON.stringify(series.map(({ label, stroke, points }) => [label, stroke, points?.show]));
const onScale = (value, isLog) => (isLog && value !== null && value <= 0 ? null : value);

function xOf(point, axis, epochs) {
  if (axis === "time") return point.time;
  return axis === "epoch" ? epochAt(point.step, epochs) : point.step;
}

function number(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

const tickText = (value) => (value === null ? "" : number(value));

function xText(x, isTime) {
  if (x == null) return "–";
  return isTime ? new Date(x * 1000).toLocaleTimeString() : number(x);
}
