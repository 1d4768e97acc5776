// What a page of charts shares: the settings, the zoomed window, and charts that are made when they
// are scrolled into view.
import { PanelChoice } from "./panel_choice.js";
import { readView, writeView } from "./view.js";

export class Panels {
  constructor(section) {
    this.section = section;
    this.grid = section.querySelector("#chart-grid");
    this.template = section.querySelector("#chart-card");
    this.unit = section.dataset.unit || "step";
    this.xName = section.dataset.axisParameter ?? "x";
    this.view = readView(this.xName);
    this.choice = new PanelChoice(section.dataset.first, () => this.arrange());
    this.cards = new Map(); // chart name → Plot
    this.seen = new IntersectionObserver((entries) => this.reveal(entries), { rootMargin: "150px" });
    this.startTools();
    document.addEventListener("theme-changed", () => this.each((chart) => chart.rebuild()));
    for (const what of ["resize", "fullscreenchange"]) addEventListener(what, () => this.each((chart) => chart.resize()));
  }

  get axis() {
    return this.view.x;
  }

  reveal(entries) {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      this.seen.unobserve(target);
      this.cards.get(target.dataset.chart).mount();
    }
  }

  startTools() {
    const smoothing = this.section.querySelector("#smoothing");
    smoothing.value = this.view.smooth;
    smoothing.addEventListener("input", () => this.change({ smooth: Number(smoothing.value) }));
    this.section.querySelector("#reset-zoom").addEventListener("click", () => this.zoomTo(null));
    this.showReset();
    this.section.querySelector("#chart-search").addEventListener("input", () => this.arrange());
    this.section.querySelector("#show-hidden").addEventListener("click", () => this.choose((choice) => choice.showAll()));
  }

  change(changes) {
    Object.assign(this.view, changes);
    writeView(this.view, this.xName);
    this.each((chart) => ("x" in changes ? chart.rebuild() : chart.draw()));
  }

  setLog(name, isOn) {
    if (isOn) this.view.log.add(name);
    else this.view.log.delete(name);
    writeView(this.view, this.xName);
    this.cards.get(name).rebuild();
  }

  // Show a window of the x axis, [from, to], in all charts; null: all of it.
  zoomTo(zoom) {
    this.change({ zoom });
    this.showReset();
  }

  showReset() {
    this.section.querySelector("#reset-zoom").hidden = !this.view.zoom;
  }

  // Change which charts are shown or in which order.
  choose(change) {
    change(this.choice);
    this.arrange();
  }

  move(chart, by) {
    const shown = [...chart.card.parentElement.children].filter((card) => !card.hidden);
    this.choose((choice) => choice.move(shown.map((card) => card.dataset.chart), chart.name, by));
    chart.card.querySelector("[data-menu] summary").focus();
  }

  // Puts the charts into their grids, in order, and shows those that are chosen and searched for.
  arrange() {
    const names = [...this.cards.keys()].sort(this.choice.compare);
    const wanted = this.section.querySelector("#chart-search").value.trim().toLowerCase();
    for (const name of names) {
      const chart = this.cards.get(name), grid = this.gridOf(name);
      const isFound = `${name} ${chart.title}`.toLowerCase().includes(wanted);
      chart.card.hidden = this.choice.hidden.has(name) || !isFound;
      chart.card.classList.toggle("pinned", this.choice.pinned.has(name));
      if (grid.lastElementChild !== chart.card) grid.append(chart.card);
    }
    const number = names.filter((name) => this.choice.hidden.has(name)).length;
    const button = this.section.querySelector("#show-hidden");
    button.hidden = !number;
    button.textContent = `Show ${number} hidden`;
    this.section.querySelector("#chart-tools").hidden = !names.length;
  }

  // Shows only the charts whose names contain the text, as if it had been typed.
  find(text) {
    this.section.querySelector("#chart-search").value = text;
    this.arrange();
  }

  gridOf() {
    return this.grid;
  }

  // The address of the points of a chart as CSV, or null.
  csvOf() {
    return null;
  }

  each(act) {
    for (const [name, chart] of this.cards) act(chart, name);
  }
}
