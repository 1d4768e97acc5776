// Charts of what operations measured: x axes, groups, and the points of a zoomed window. Subclasses
// have `curves`, the Curves of each operation, `cardOf`, the card of a metric, and `fetchDetails`.
import { COUNTS } from "./axis.js";
import { Panels } from "./panels.js";
import { isCounter, isOfClient, isSystem } from "./series.js";

const isAxis = (name) => name === "epoch" || name === "round"; // nothing but an axis

export class CurvePanels extends Panels {
  // `Chart`: the class of the charts.
  constructor(section, Chart) {
    super(section);
    this.Chart = Chart;
    this.groups = [
      { element: section.querySelector("#client-charts"), has: isOfClient },
      { element: section.querySelector("#counter-charts"), has: isCounter },
      { element: section.querySelector("#system-charts"), has: isSystem },
    ];
    for (const { element } of this.groups) element.addEventListener("toggle", () => this.each((chart) => chart.resize()));
  }

  // After new points: `touched` are the names of their metrics, null draws everything.
  show(touched) {
    this.makeCards();
    this.showAxes();
    const charts = touched && new Set([...touched].map((name) => this.cardOf(name)));
    this.each((chart, name) => (!charts || charts.has(name)) && chart.draw());
    this.refine();
  }

  // Says why there is no chart: the operations are `waiting`, `running` or `ended`.
  explain(phase) {
    const note = this.section.querySelector("#no-points"), text = note.dataset[phase];
    if (text && note.textContent !== text) note.textContent = text;
  }

  makeCards() {
    const measured = this.curves.flatMap(({ metrics }) => [...metrics.keys()]);
    const names = new Set(measured.map((name) => this.cardOf(name)).filter((name) => !isAxis(name) && !this.cards.has(name)));
    for (const name of names) {
      const chart = new this.Chart(this, name, this.template);
      this.cards.set(name, chart);
      this.seen.observe(chart.card);
    }
    if (names.size) this.arrange();
    this.showLinks();
    this.section.querySelector("#no-points").hidden = this.cards.size > 0;
  }

  // Links of other parts of the page to charts, of which there may be none yet.
  showLinks() {
    const names = [...this.cards.keys()];
    for (const link of document.querySelectorAll("[data-find-charts]")) {
      link.hidden = !names.some((name) => name.startsWith(link.dataset.findCharts));
    }
  }

  // Pinned charts are above all; clients, counters and the system have groups that are closed at first.
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

  startTools() {
    super.startTools();
    document.addEventListener("click", ({ target }) => {
      const link = target.closest("[data-find-charts]");
      if (link) this.find(link.dataset.findCharts);
    });
    const choice = this.section.querySelector("#x-axis");
    choice.value = this.view.x;
    choice.addEventListener("change", () => {
      this.zoomTo(null);
      this.change({ x: choice.value });
    });
  }

  // Offers the axes that an operation has points for.
  showAxes() {
    for (const option of this.section.querySelector("#x-axis").options) option.hidden = !this.hasAxis(option.value);
  }

  hasAxis(x) {
    return !(x in COUNTS) || this.curves.some(({ metrics }) => metrics.has(x));
  }

  get axis() {
    return this.hasAxis(this.view.x) ? this.view.x : "step";
  }

  reveal(entries) {
    super.reveal(entries);
    this.refine();
  }

  zoomTo(zoom) {
    for (const each of this.curves) each.details = new Map();
    super.zoomTo(zoom);
    this.refine();
  }

  // Load the points of the window that the whole curves leave out, for the charts in sight.
  refine() {
    if (!this.view.zoom) return;
    const thinned = this.curves.filter(({ isThinned }) => isThinned);
    if (thinned.length) this.each((chart) => chart.isMounted && this.refineOne(chart, thinned));
  }

  async refineOne(chart, thinned) {
    const isMissing = ({ metrics, details }) => (name) => metrics.has(name) && !details.has(name);
    const wanted = thinned.map((curves) => ({ curves, details: curves.details, names: chart.names.filter(isMissing(curves)) }));
    const asked = wanted.filter(({ names }) => names.length);
    if (!asked.length) return;
    for (const { details, names } of asked) for (const name of names) details.set(name, []);
    const windows = asked.map(({ curves }) => ({ curves, ...curves.stepsOf(this.view.zoom, this.axis) }));
    const names = [...new Set(asked.flatMap((each) => each.names))];
    const found = await this.fetchDetails(names, windows).catch(() => null);
    for (const { curves, details, names } of asked) {
      if (!found) for (const name of names) details.delete(name); // asked again with the next points
      else if (details === curves.details) curves.refine(found.get(curves)); // else another window meanwhile
    }
    if (found) chart.draw();
  }
}
