// The points of one operation: which of them stand, and their places on the x axis.
import { COUNTS } from "./axis.js";
import { countAt, divide, isRetired, merge } from "./series.js";

export class Curves {
  constructor() {
    this.metrics = new Map(); // name → points
    this.details = new Map(); // name → further points, of the zoomed window
    this.standing = {};
    this.isThinned = false;
    this.last = 0; // id of the newest point
  }

  // Adds what the server sent: columns of new points, and which attempts' points stand. Returns the
  // names of what is to be drawn again; null: everything, because places have moved.
  add({ last, series, is_thinned }, standing) {
    const hasMoved = JSON.stringify(standing) !== JSON.stringify(this.standing);
    this.standing = standing;
    this.last = last;
    this.isThinned ||= is_thinned;
    const touched = collect(series, this.metrics);
    return hasMoved || [...touched].some((name) => name in COUNTS) ? null : touched;
  }

  // Adds points of the zoomed window.
  refine(series) {
    collect(series, this.details);
  }

  get hasRetired() {
    return [...this.metrics.values()].some((points) => points.some((point) => isRetired(point, this.standing)));
  }

  // The points of a metric, each once.
  pointsOf(name) {
    const points = this.metrics.get(name) ?? [], details = this.details.get(name);
    return details ? merge(points, details) : points;
  }

  divided(name) {
    return divide(this.pointsOf(name), this.standing);
  }

  // A function that returns the place of a point on an x axis, or null.
  places(axis) {
    if (axis === "step") return ({ step }) => step;
    if (axis === "time") return ({ time }) => time;
    if (axis === "elapsed") {
      const start = this.start();
      return ({ time }) => time - start;
    }
    const counts = divide(this.metrics.get(axis) ?? [], this.standing).live;
    return ({ step }) => countAt(step, counts);
  }

  // The time of the first point.
  start() {
    let start = Infinity;
    for (const points of this.metrics.values()) for (const { time } of points) start = Math.min(start, time);
    return start;
  }

  // The steps of the points in a window of an axis, and of the points next to it.
  stepsOf([from, to], axis) {
    const placeOf = this.places(axis);
    let first = 0, last = Infinity;
    for (const points of this.metrics.values()) {
      for (const point of points) {
        const place = placeOf(point);
        if (place === null) continue;
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
