// The curves of several operations: a chart for each metric, a colour for each operation, and one
// legend, which shows the values under the cursor.
import { getJSON } from "./ask.js";
import { axisName, COUNTS, isTime } from "./axis.js";
import { Lines, withoutPlace } from "./chart.js";
import { curveColour } from "./colours.js";
import { CurvePanels } from "./curve_panels.js";
import { Curves } from "./curves.js";
import { Plot } from "./plot.js";

class ComparedChart extends Plot {
  get names() {
    return [this.name];
  }

  plan() {
    const { axis, shown, view } = this.charts;
    const lines = new Lines(this, null, isTime(axis));
    for (const { id, curves, tint } of shown.values()) {
      lines.placeOf = curves.places(axis);
      lines.addSmoothed(curves.divided(this.name).live, view, { label: id, rawLabel: id, ink: curveColour(tint) });
    }
    return lines.tables.length ? lines : { tables: [[[0], [null]]], series: [{ label: this.name }] };
  }

  // The legend of the page shows the values at the cursor, of all operations.
  startLegend() {}

  options(series) {
    return { ...super.options(series), legend: { show: false } };
  }

  point() {
    super.point();
    if (this.isLeading) this.charts.tell(this.title, this.readings());
  }

  nameOf(label) {
    return this.charts.shown.get(label)?.name ?? label;
  }

  whyEmpty() {
    const { axis, shown } = this.charts, all = [...shown.values()].map(({ curves }) => curves);
    if (!all.some(({ metrics }) => metrics.get(this.name)?.length)) return "No points: none of these operations has measured this.";
    const live = all.map((curves) => [curves.places(axis), curves.divided(this.name).live]);
    if (!live.some(([, points]) => points.length)) return "No points: the work that measured them was discarded.";
    return live.some(([placeOf, points]) => points.some((point) => placeOf(point) !== null)) ? "" : withoutPlace(axis);
  }

  describe() {
    const parts = [];
    for (const { name, curves } of this.charts.shown.values()) {
      const { live } = curves.divided(this.name);
      if (live.length) parts.push(`${name}: ${this.newestOf(live)}`);
    }
    return parts.join("; ");
  }
}

export class ComparedCharts extends CurvePanels {
  constructor(section) {
    super(section, ComparedChart);
    this.shown = new Map(); // id → {id, name, note, unit, tint, curves}, in the order of the legend
  }

  get curves() {
    return [...this.shown.values()].map(({ curves }) => curves);
  }

  cardOf(name) {
    return name;
  }

  // What the next request asks from: the newest point of each operation.
  get position() {
    return [...this.shown.values()].map(({ id, curves }) => `${id}:${curves.last}`).join(",");
  }

  // Shows these operations, each with its new points; others are left out.
  take(operations) {
    const before = this.shown, free = freeTints(operations, before);
    let touched = new Set();
    this.shown = new Map();
    for (const { operation_id: id, name, note, unit, tint: given, points, standing } of operations) {
      const { curves, tint } = before.get(id) ?? { curves: new Curves(), tint: given ?? free.shift() };
      this.shown.set(id, { id, name, note, unit, tint, curves });
      const added = curves.add(points, standing);
      touched = added && touched && new Set([...touched, ...added]);
    }
    if (!isSame([...before.keys()], [...this.shown.keys()])) touched = null;
    const units = new Set(operations.map(({ unit }) => unit));
    this.unit = (units.size === 1 && [...units][0]) || "step";
    this.section.querySelector("#x-axis").options[0].text = this.unit;
    this.showLegend();
    this.show(touched);
  }

  showAxes() {
    super.showAxes();
    this.nameMissing();
  }

  change(changes) {
    super.change(changes);
    this.nameMissing();
  }

  // Operations that have no curve over the chosen axis.
  nameMissing() {
    const lacks = ({ curves }) => this.axis in COUNTS && !curves.metrics.has(this.axis);
    const names = [...this.shown.values()].filter(lacks).map(({ name }) => name), note = this.section.querySelector("#without-axis");
    note.hidden = !names.length;
    note.textContent = `Without ${axisName(this.axis)}: ${names.join(", ")}.`;
  }

  showLegend() {
    const list = this.section.querySelector("#curve-names"), template = this.section.querySelector("#curve-name");
    const described = JSON.stringify([...this.shown.values()].map(({ id, name, note, tint }) => [id, name, note, tint]));
    if (described === this.described) return;
    this.described = described;
    this.values = new Map();
    list.replaceChildren(...[...this.shown.values()].map(({ id, name, note, tint }) => {
      const row = template.content.firstElementChild.cloneNode(true), link = row.querySelector("a");
      row.querySelector(".swatch").classList.add(`swatch-${tint}`);
      link.href = `/operations/${id}/`;
      link.textContent = name;
      row.querySelector(".sub").textContent = note;
      const value = row.querySelector(".num");
      value.dataset.value = id;
      this.values.set(id, value);
      return row;
    }));
  }

  tell(title, readings) {
    this.section.querySelector("#at-step").textContent = readings ? `${title} at ${readings.place}` : "";
    const texts = new Map((readings?.values ?? []).map(({ label, text }) => [label, text]));
    for (const [id, place] of this.values) place.textContent = texts.get(id) ?? "";
  }

  csvOf(chart) {
    return `/compare/points.csv?${new URLSearchParams({ ids: [...this.shown.keys()], name: chart.name })}`;
  }

  async fetchDetails(names, windows) {
    const idOf = new Map([...this.shown.values()].map(({ id, curves }) => [curves, id]));
    const texts = windows.map(({ curves, first, last }) => `${idOf.get(curves)}:${first}:${last < Infinity ? last : ""}`);
    const { operations } = await getJSON(`/compare/points?${new URLSearchParams({ windows: texts, name: names })}`);
    return new Map(windows.map(({ curves }) => [curves, operations[idOf.get(curves)].series]));
  }
}

// The colours that no operation has that stays: one keeps its colour while others come and go.
function freeTints(operations, before) {
  const kept = new Set(operations.map(({ operation_id: id }) => before.get(id)?.tint));
  return operations.map((_, i) => i).filter((i) => !kept.has(i));
}

const isSame = (one, other) => one.join() === other.join();
