// Parallel coordinates: an axis for each chosen dimension, a line for each operation.
import { cut, titleOf } from "./relation_scales.js";
import { label, line, svg } from "./svg.js";

const HEIGHT = 300, TOP = 34, BOTTOM = 16;
const LEFT = 70, RIGHT = 60, LEAST = 120; // pixels: the sides, and between two axes at least
const GRAB = 14; // pixels from an axis

// `ranges`: by the key of a dimension [from, to], as places from 0 to 1. Returns {lines, distance(i,
// point): from operation i, at(event): the axis below the pointer or null, and the place on it}.
export function drawParallel(box, { dimensions, scales, shares, ranges }) {
  const gaps = Math.max(1, dimensions.length - 1);
  const width = Math.max(box.clientWidth - 16, LEFT + RIGHT + gaps * LEAST);
  const x = (n) => LEFT + (n * (width - LEFT - RIGHT)) / gaps;
  const y = (place) => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
  const picture = svg("svg", { width, height: HEIGHT, "aria-hidden": "true" });
  const points = shares.map((_, i) => dimensions.map(({ values }, n) => placed(scales[n].placeOf(values[i]), x(n), y)));
  const lines = points.map((each, i) => svg("path", { d: pathOf(each), class: "relation-line" }));
  picture.append(...lines);
  dimensions.forEach(({ key }, n) => ranges.has(key) && picture.append(band(ranges.get(key), x(n), y)));
  dimensions.forEach((dimension, n) => picture.append(...axis(dimension, scales[n], x(n), y)));
  box.replaceChildren(picture);
  const at = ({ clientX, clientY }) => {
    const frame = picture.getBoundingClientRect();
    const nearest = Math.max(0, Math.min(dimensions.length - 1, Math.round(((clientX - frame.left - LEFT) / (width - LEFT - RIGHT)) * gaps)));
    const place = (HEIGHT - BOTTOM - clientY + frame.top) / (HEIGHT - TOP - BOTTOM);
    const isNear = Math.abs(clientX - frame.left - x(nearest)) < GRAB;
    return { axis: isNear ? nearest : null, place: Math.max(0, Math.min(1, place)) };
  };
  return { lines, distance: (i, point) => distance(points[i], point), at };
}

const band = ([from, to], x, y) => svg("rect", { class: "relation-range", x: x - 6, y: y(to), width: 12, height: Math.max(2, y(from) - y(to)) });

const placed = (place, x, y) => (place === null ? null : [x, y(place)]);

// A value that is missing interrupts the line; a single point between two gaps is a short dash.
function pathOf(points) {
  return points.map((point, n) => {
    if (!point) return "";
    if (points[n - 1]) return `L${point}`;
    return points[n + 1] ? `M${point}` : `M${point[0] - 4},${point[1]}h8`;
  }).join("");
}

function axis(dimension, scale, x, y) {
  const ticks = scale.ticks.map(({ place, text }) => label(text, x - 6, y(place) + 4, "end"));
  const name = label(cut(titleOf(dimension)), x, 14, "middle", "relation-name");
  name.append(svg("title", {}, titleOf(dimension)));
  const note = scale.isLog ? [label("log", x, 27)] : [];
  return [line("relation-axis", x, y(0), x, y(1)), ...ticks, name, ...note];
}

// From a point to the nearest part of a line.
function distance(points, [px, py]) {
  let nearest = Infinity;
  points.forEach((a, n) => {
    if (!a) return;
    const b = points[n + 1] ?? a;
    const long = (b[0] - a[0]) ** 2 + (b[1] - a[1]) ** 2;
    const share = long ? Math.min(1, Math.max(0, ((px - a[0]) * (b[0] - a[0]) + (py - a[1]) * (b[1] - a[1])) / long)) : 0;
    nearest = Math.min(nearest, Math.hypot(px - a[0] - share * (b[0] - a[0]), py - a[1] - share * (b[1] - a[1])));
  });
  return nearest;
}
