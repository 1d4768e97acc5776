// One chart: the live curve of each metric, smoothed before the raw one, retired points dashed.
import { isTime } from "./axis.js";
import { curveColour, translucent } from "./colours.js";
import { onScale, Plot } from "./plot.js";
import { chartOf, divide, smooth } from "./series.js";

export class Chart extends Plot {
  get names() {
    return [...this.charts.metrics.keys()].filter((name) => chartOf(name) === this.name).sort();
  }

  // What is drawn: a table of (x, y) for each line, and how each looks.
  plan() {
    const { axis, standing, view } = this.charts;
    const placeOf = this.charts.places();
    const tables = [], series = [];
    const add = (points, values, look) => {
      const table = tableOf(points, values.map((value) => onScale(value, this.isLog)), placeOf, isTime(axis));
      if (!table[0].length) return;
      tables.push(table);
      series.push(look);
    };
    this.names.forEach((name, i) => {
      const ink = curveColour(i);
      const { live, retired } = divide(this.charts.pointsOf(name), standing);
      for (const points of retired) {
        const look = { label: `${name} (older)`, stroke: translucent(ink, 0.8), width: 1.5, dash: [5, 4], spanGaps: true, isQuiet: true };
        add(points, points.map((p) => p.value), look);
      }
      const raw = live.map((point) => point.value);
      if (view.smooth) {
        add(live, raw, { label: `${name} (raw)`, stroke: translucent(ink, 0.28), width: 1, isQuiet: true });
      }
      const isSparse = this.countShown(live, placeOf) < 40;
      add(live, smooth(raw, view.smooth), { label: name, ink, stroke: ink, width: 2, points: { show: isSparse, size: 5 } });
    });
    return tables.length ? { tables, series } : { tables: [[[0], [null]]], series: [{ label: this.name }] };
  }

  countShown(points, placeOf) {
    const [from, to] = this.charts.view.zoom ?? [-Infinity, Infinity];
    return points.filter((point) => placeOf(point) >= from && placeOf(point) <= to).length;
  }

  describe() {
    const parts = [];
    for (const name of this.names) {
      const points = this.charts.metrics.get(name);
      if (!points.length) continue;
      const newest = points.reduce((a, b) => (b.step >= a.step ? b : a));
      parts.push(`${name}: ${newest.value === null ? "not finite" : this.format(newest.value)} at step ${newest.step}`);
    }
    return parts.join("; ");
  }
}

// Columns x and y, x rising. `hasPauses`: between two attempts is a gap.
function tableOf(points, values, placeOf, hasPauses) {
  const xs = [], ys = [];
  points.forEach((point, i) => {
    const x = placeOf(point), last = xs.at(-1);
    if (x === null || x <= last) return;
    if (hasPauses && i && points[i - 1].attempt !== point.attempt && last !== undefined) {
      xs.push((last + x) / 2);
      ys.push(null);
    }
    xs.push(x);
    ys.push(values[i]);
  });
  return [xs, ys];
}
