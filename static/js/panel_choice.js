// Which charts are shown, and in which order: kept for the user in the browser's storage.
import { order } from "./series.js";

const KEY = "chart-panels";

export class PanelChoice {
  constructor() {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    this.hidden = new Set(kept.hidden);
    this.pinned = new Set(kept.pinned);
    this.order = kept.order ?? []; // names; the others follow
  }

  // In or out of one of the sets, "hidden" or "pinned".
  toggle(what, name) {
    if (!this[what].delete(name)) this[what].add(name);
    this.keep();
  }

  showAll() {
    this.hidden.clear();
    this.keep();
  }

  // `names`: as they are displayed now. Moves one of them by a number of places.
  move(names, name, by) {
    const from = names.indexOf(name), to = Math.min(names.length - 1, Math.max(0, from + by));
    names.splice(to, 0, ...names.splice(from, 1));
    this.order = [...names, ...this.order.filter((each) => !names.includes(each))];
    this.keep();
  }

  compare = (a, b) => this.pinned.has(b) - this.pinned.has(a) || this.place(a) - this.place(b) || order(a, b);

  place(name) {
    const place = this.order.indexOf(name);
    return place < 0 ? this.order.length : place;
  }

  keep() {
    const { hidden, pinned } = this;
    localStorage.setItem(KEY, JSON.stringify({ hidden: [...hidden], pinned: [...pinned], order: this.order }));
  }
}
