// The curves of one operation, drawn anew when their data, their settings or the theme change.
import { getJSON } from "./ask.js";
import { COUNTS } from "./axis.js";
import { Chart } from "./chart.js";
import { Panels } from "./panels.js";
import { chartOf, countAt, divide, isCounter, isRetired, isSystem, merge } from "./series.js";

const isAxis = (name) => name === "epoch" || name === "round"; // nothing but an axis

export class Charts extends Panels {
  constructor(section) {
    super(section);
    this.groups = [
      { element: section.querySelector("#counter-charts"), has: isCounter },
      { element: section.querySelector("#system-charts"), has: isSystem },
    ];
    for (const { element } of this.groups) element.addEventListener("toggle", () => this.each((chart) => chart.resize()));
    this.metrics = new Map(); // name → points
    this.details = new Map(); // name → further points, of the zoomed window
    this.standing = {};
  }

  // Adds what the server sent: columns of new points, and which attempts' points stand.
  add({ series, is_thinned }, standing) {
    const moved = JSON.stringify(standing) !== JSON.stringify(this.standing);
    this.standing = standing;
    this.isThinned ||= is_thinned;
    const touched = collect(series, this.metrics);
    this.makeCards();
    this.showAxes();
    const isAll = moved || [...touched].some((name) => name in COUNTS);
    const charts = new Set([...touched].map(chartOf));
    this.each((chart, name) => (isAll || charts.has(name)) && chart.draw());
    this.refine();
  }

  makeCards() {
    const names = new Set([...this.metrics.keys()].map(chartOf).filter((name) => !isAxis(name) && !this.cards.has(name)));
    for (const name of names) {
      const chart = new Chart(this, name, this.template);
      this.cards.set(name, chart);
      this.seen.observe(chart.card);
    }
    if (names.size) this.arrange();
    this.section.querySelector("#no-points").hidden = this.cards.size > 0;
    const isDashed = [...this.metrics.values()].some((points) => points.some((point) => isRetired(point, this.standing)));
    this.section.querySelector("#dashed-note").hidden = !isDashed;
  }

  // Pinned charts are above all; counters and the system have groups that are closed at first.
  gridOf(name) {
    if (this.choice.pinned.has(name)) return this.grid;
    const group = this.groups.find(({ has }) => has(name));
    return group ? group.element.querySelector(".chart-grid") : this.grid;
  }

  arrange() {
    super.arrange();
    const wanted = this.section.querySelector("#chart-search").value.trim();
    for (const { element } of this.groups) {
      element.hidden = !element.querySelector(".chart:not([hidden])");
      if (wanted) element.open = true;
    }
  }

  csvOf(chart) {
    return `${this.section.dataset.points}.csv?${new URLSearchParams({ name: chart.names })}`;
  }

  startTools() {
    super.startTools();
    const choice = this.section.querySelector("#x-axis");
    choice.value = this.view.x;
    choice.addEventListener("change", () => {
      this.zoomTo(null);
      this.change({ x: choice.value });
    });
  }

  // Offers the axes that the operation has points for.
  showAxes() {
    for (const option of this.section.querySelector("#x-axis").options) {
      option.hidden = option.value in COUNTS && !this.metrics.has(option.value);
    }
  }

  get axis() {
    return this.view.x in COUNTS && !this.metrics.has(this.view.x) ? "step" : this.view.x;
  }

  // A function that returns the place of a point on the x axis, or null.
  places() {
    const { axis } = this;
    if (axis === "step") return ({ step }) => step;
    if (axis === "time") return ({ time }) => time;
    if (axis === "elapsed") {
      const start = this.start();
      return ({ time }) => time - start;
    }
    const counts = divide(this.metrics.get(axis), this.standing).live;
    return ({ step }) => countAt(step, counts);
  }

  // The time of the first point.
  start() {
    let start = Infinity;
    for (const points of this.metrics.values()) for (const { time } of points) start = Math.min(start, time);
    return start;
  }

  pointsOf(name) {
    const points = this.metrics.get(name), details = this.details.get(name);
    return details ? merge(points, details) : points;
  }

  reveal(entries) {
    super.reveal(entries);
    this.refine();
  }

  zoomTo(zoom) {
    this.details = new Map();
    super.zoomTo(zoom);
    this.refine();
  }

  // Load the points of the window that the whole curves leave out, for the charts in sight.
  refine() {
    if (!this.view.zoom || !this.isThinned) return;
    this.each((chart) => chart.isMounted && this.refineOne(chart));
  }

  async refineOne(chart) {
    const { details } = this;
    const names = chart.names.filter((name) => !details.has(name));
    if (!names.length) return;
    for (const name of names) details.set(name, []);
    const { first, last } = this.stepsOf(this.view.zoom);
    const query = new URLSearchParams({ name: names });
    if (first > 0) query.set("after_step", first - 1);
    if (last < Infinity) query.set("to_step", last);
    const answer = await getJSON(`${this.section.dataset.points}?${query}`).catch(() => null);
    if (!answer) return names.forEach((name) => details.delete(name)); // asked again with the next points
    if (details !== this.details) return; // another window meanwhile
    collect(answer.series, details);
    chart.draw();
  }

  // The steps of the points in a window, and of the points next to it.
  stepsOf([from, to]) {
    const placeOf = this.places();
    let first = 0, last = Infinity;
    for (const points of this.metrics.values()) {
      for (const point of points) {
        const place = placeOf(point);
        if (place <= from) first = Math.max(first, point.step);
        if (place >= to) last = Math.min(last, point.step);
      }
    }
    return { first, last };
  }
}

// Puts columns of points into a map of points by metric; returns the names of the metrics.
function collect(series, metrics) {
  for (const { name, attempt, steps, values, times } of series) {
    const points = metrics.get(name) ?? [];
    steps.forEach((step, i) => points.push({ attempt, step, value: values[i], time: times[i] }));
    metrics.set(name, points);
  }
  return new Set(series.map(({ name }) => name));
}
