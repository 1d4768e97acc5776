// Ranges that are marked on the axes of the parallel coordinates: what has a value outside recedes.
const LEAST = 0.01; // of an axis: less is a click, which clears its range
const SLACK = 1e-6;

export class Ranges {
  constructor(relations) {
    this.relations = relations;
    this.marked = new Map(); // key of a dimension -> [from, to], as places from 0 to 1
    for (const text of (relations.view.within ?? "").split(",")) {
      const [key, from, to] = text.split("~");
      if (Number(to) >= Number(from)) this.marked.set(key, [Number(from), Number(to)]);
    }
    this.box = relations.find('[data-plot="parallel"]');
    this.box.addEventListener("pointerdown", (event) => this.begin(event));
    this.box.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) this.box.addEventListener(name, () => this.end());
    this.button = relations.find("[data-clear-ranges]");
    this.button.addEventListener("click", () => this.clear());
  }

  // Whether an operation lies within every range whose axis is drawn.
  has(i) {
    const { axes, byKey, scales } = this.relations;
    return axes.every((key) => {
      const range = this.marked.get(key);
      if (!range) return true;
      const place = scales.get(key).placeOf(byKey.get(key).values[i]);
      return place !== null && place >= range[0] - SLACK && place <= range[1] + SLACK;
    });
  }

  // How many operations lie within; "" without a range.
  summary() {
    const { data, axes } = this.relations;
    if (!axes.some((key) => this.marked.has(key))) return "";
    const inside = data.operations.filter((_, i) => this.has(i));
    return `${inside.length} of ${data.operations.length} within the marked ranges`;
  }

  set(key, from, to) {
    if (to - from < LEAST) this.marked.delete(key);
    else this.marked.set(key, [from, to]);
    this.relations.draw();
  }

  clear() {
    this.marked.clear();
    this.relations.draw();
    this.remember();
    this.box.focus();
  }

  // Leave the operations that are at least (`isLowest`), or at most, as high as one on an axis.
  cut(key, i, isLowest) {
    const { byKey, scales } = this.relations;
    const place = scales.get(key).placeOf(byKey.get(key).values[i]);
    if (place === null) return;
    const [from, to] = this.marked.get(key) ?? [0, 1];
    const range = isLowest ? [place, Math.max(to, place)] : [Math.min(from, place), place];
    this.marked.set(key, range);
    this.relations.draw();
    this.remember();
  }

  begin(event) {
    const found = event.button === 0 && this.relations.plots.parallel?.at(event);
    if (!found || found.axis === null) return;
    this.drag = { key: this.relations.axes[found.axis], from: found.place };
    this.box.setPointerCapture(event.pointerId);
    this.set(this.drag.key, found.place, found.place);
  }

  move(event) {
    if (!this.drag) return;
    const { place } = this.relations.plots.parallel.at(event), { key, from } = this.drag;
    this.set(key, Math.min(from, place), Math.max(from, place));
  }

  end() {
    if (!this.drag) return;
    this.drag = null;
    this.remember();
  }

  remember() {
    const texts = [...this.marked].map(([key, [from, to]]) => `${key}~${round(from)}~${round(to)}`);
    this.relations.remember("within", texts.join(","));
  }
}

const round = (place) => Number(place.toFixed(6));
