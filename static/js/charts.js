// The curves. A chart is made when it is scrolled into view, and drawn anew when its data, its
// settings or the theme change.
import { Chart } from "./chart.js";
import { chartOf, order } from "./series.js";

const HIDDEN = new Set(["epoch"]); // it is an axis

export class Charts {
  constructor(section) {
    this.section = section;
    this.grid = section.querySelector("#chart-grid");
    this.metrics = new Map(); // name → points
    this.starts = [];
    this.cards = new Map(); // chart name → Chart
    this.view = readView(section.dataset.unit || "step");
    this.seen = new IntersectionObserver((entries) => this.reveal(entries), { rootMargin: "150px" });
    this.startTools();
    document.addEventListener("theme-changed", () => this.each((chart) => chart.rebuild()));
    addEventListener("resize", () => this.each((chart) => chart.resize()));
  }

  // Takes what the server sent: columns of new points, and where each attempt started.
  add(series, starts) {
    const moved = JSON.stringify(starts) !== JSON.stringify(this.starts);
    this.starts = starts;
    const touched = new Set();
    for (const { name, attempt, steps, values, times } of series) {
      const points = this.metrics.get(name) ?? [];
      steps.forEach((step, i) => points.push({ attempt, step, value: values[i], time: times[i] }));
      this.metrics.set(name, points);
      touched.add(chartOf(name));
    }
    this.makeCards();
    this.each((chart, name) => (moved || touched.has(name) || touched.has("epoch")) && chart.draw());
  }

  makeCards() {
    const names = [...new Set([...this.metrics.keys()].map(chartOf))].filter((n) => !HIDDEN.has(n));
    for (const name of names.sort(order)) {
      if (this.cards.has(name)) continue;
      const chart = new Chart(this, name, this.section.querySelector("#chart-card"));
      this.cards.set(name, chart);
      const after = [...this.grid.children].find((card) => order(card.dataset.chart, name) > 0);
      this.grid.insertBefore(chart.card, after ?? null);
      this.seen.observe(chart.card);
    }
    this.section.querySelector("#chart-tools").hidden = this.cards.size === 0;
    this.section.querySelector("#dashed-note").hidden = this.starts.length < 2;
    this.section.querySelector("#no-points").hidden = this.cards.size > 0;
  }

  reveal(entries) {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      this.seen.unobserve(target);
      this.cards.get(target.dataset.chart).mount();
    }
  }

  startTools() {
    const axis = this.section.querySelector("#x-axis");
    const smoothing = this.section.querySelector("#smoothing");
    axis.value = this.view.x;
    smoothing.value = this.view.smooth;
    axis.addEventListener("change", () => this.change({ x: axis.value }));
    smoothing.addEventListener("input", () => this.change({ smooth: Number(smoothing.value) }));
  }

  change(news) {
    Object.assign(this.view, news);
    writeView(this.view);
    this.each((chart) => ("x" in news || "log" in news ? chart.rebuild() : chart.draw()));
  }

  setLog(name, isOn) {
    const log = new Set(this.view.log);
    if (isOn) log.add(name);
    else log.delete(name);
    this.view.log = log;
    writeView(this.view);
    this.cards.get(name).rebuild();
  }

  each(act) {
    for (const [name, chart] of this.cards) act(chart, name);
  }
}

// How one looks at the curves is in the address.
function readView() {
  const query = new URLSearchParams(location.search);
  const x = ["step", "epoch", "time"].includes(query.get("x")) ? query.get("x") : "step";
  const smooth = Math.min(0.98, Math.max(0, Number(query.get("smooth")) || 0));
  return { x, smooth, log: new Set((query.get("log") ?? "").split(",").filter(Boolean)) };
}

function writeView({ x, smooth, log }) {
  const query = new URLSearchParams();
  if (x !== "step") query.set("x", x);
  if (smooth) query.set("smooth", smooth);
  if (log.size) query.set("log", [...log].join(","));
  const text = query.toString();
  history.replaceState(history.state, "", location.pathname + (text && `?${text}`) + location.hash);
}
