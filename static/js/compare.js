// The curves of several operations: a chart for each metric, a colour for each operation, and one
// legend, which shows the values under the cursor.
import { curveColour, translucent } from "./colours.js";
import { Panels } from "./panels.js";
import { onScale, Plot } from "./plot.js";
import { smooth } from "./series.js";

class ComparedChart extends Plot {
  plan() {
    const { operations, metrics, view } = this.charts;
    const found = metrics.get(this.name);
    const tables = [], series = [];
    operations.forEach((id, i) => {
      if (!found[id]) return;
      const { steps } = found[id], ink = curveColour(i);
      const raw = found[id].values.map((value) => (typeof value === "number" ? value : null));
      const add = (values, look) => {
        tables.push([steps, values.map((value) => onScale(value, this.isLog))]);
        series.push({ label: id, ink, stroke: ink, ...look });
      };
      if (view.smooth) add(raw, { stroke: translucent(ink, 0.28), width: 1, isQuiet: true });
      add(smooth(raw, view.smooth), { width: 2, points: { show: steps.length < 40, size: 5 } });
    });
    return { tables, series };
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
    return this.charts.names.get(label);
  }

  describe() {
    const found = this.charts.metrics.get(this.name);
    const parts = this.charts.operations.filter((id) => found[id]).map((id) => {
      const value = found[id].values.at(-1);
      return `${this.charts.names.get(id)}: ${typeof value === "number" ? this.format(value) : "not finite"} at step ${found[id].steps.at(-1)}`;
    });
    return parts.join("; ");
  }
}

class Comparison extends Panels {
  constructor(section) {
    super(section);
    const data = JSON.parse(document.getElementById("compared-curves").textContent);
    this.operations = data.operations;
    this.metrics = new Map(data.metrics.map(({ name, series }) => [name, series]));
    this.view.x = "step";
    this.legend = new Map([...section.querySelectorAll("[data-value]")].map((each) => [each.dataset.value, each]));
    this.names = new Map([...this.legend].map(([id, each]) => [id, each.parentElement.querySelector(".compare-label").textContent]));
    for (const name of this.metrics.keys()) {
      const chart = new ComparedChart(this, name, this.template);
      this.cards.set(name, chart);
      this.seen.observe(chart.card);
    }
    this.arrange();
  }

  tell(title, readings) {
    this.section.querySelector("#at-step").textContent = readings ? `${title} at ${readings.place}` : "";
    const texts = new Map((readings?.values ?? []).map(({ label, text }) => [label, text]));
    for (const [id, place] of this.legend) place.textContent = texts.get(id) ?? "";
  }
}

new Comparison(document.getElementById("charts"));
