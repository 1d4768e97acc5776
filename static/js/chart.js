// One chart: the live curve of each metric, smoothed before the raw one, retired points dashed.
import { axisName, isTime } from "./axis.js";
import { curveColour, translucent } from "./colours.js";
import { onScale, Plot } from "./plot.js";
import { chartOf, smooth, tableOf } from "./series.js";

export class Chart extends Plot {
  get names() {
    return [...this.charts.only.metrics.keys()].filter((name) => chartOf(name) === this.name).sort();
  }

  // What is drawn: a table of (x, y) for each line, and how each looks.
  plan() {
    const { axis, only, view } = this.charts;
    const placeOf = only.places(axis);
    const lines = new Lines(this, placeOf, isTime(axis));
    this.names.forEach((name, i) => {
      const ink = curveColour(i);
      const { live, retired } = only.divided(name);
      for (const points of retired) {
        const look = { label: `${name} (older)`, stroke: translucent(ink, 0.8), width: 1.5, dash: [5, 4], spanGaps: true, isQuiet: true };
        lines.add(points, points.map((p) => p.value), look);
      }
      lines.addSmoothed(live, view, { label: name, rawLabel: `${name} (raw)`, ink });
    });
    return lines.tables.length ? lines : { tables: [[[0], [null]]], series: [{ label: this.name }] };
  }

  whyEmpty() {
    const { axis, only } = this.charts, placeOf = only.places(axis);
    const points = this.names.flatMap((name) => only.metrics.get(name));
    return points.some((point) => placeOf(point) !== null) ? "" : withoutPlace(axis);
  }

  describe() {
    const parts = [];
    for (const name of this.names) {
      const points = this.charts.only.metrics.get(name);
      if (points.length) parts.push(`${name}: ${this.newestOf(points)}`);
    }
    return parts.join("; ");
  }
}

// Why points have no place on an x axis.
export const withoutPlace = (axis) => `No points over this x axis: no ${axisName(axis)} was counted.`;

// The lines of a plan: tables, and how each looks.
export class Lines {
  constructor(plot, placeOf, hasPauses) {
    Object.assign(this, { plot, placeOf, hasPauses, tables: [], series: [] });
  }

  add(points, values, look) {
    const table = tableOf(points, values.map((value) => onScale(value, this.plot.isLog)), this.placeOf, this.hasPauses);
    if (!table[0].length) return;
    this.tables.push(table);
    this.series.push(look);
  }

  // The curve of points, before it the raw one if it is smoothed.
  addSmoothed(points, { smooth: weight, zoom }, { label, rawLabel, ink }) {
    const raw = points.map((point) => point.value);
    if (weight) this.add(points, raw, { label: rawLabel, stroke: translucent(ink, 0.28), width: 1, isQuiet: true });
    const [from, to] = zoom ?? [-Infinity, Infinity];
    const shown = points.filter((point) => this.placeOf(point) >= from && this.placeOf(point) <= to);
    const look = { label, ink, stroke: ink, width: 2, points: { show: shown.length < 40, size: 5 } };
    this.add(points, smooth(raw, weight), look);
  }
}
