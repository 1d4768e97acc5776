// How busy the machine of a worker was: a chart each for CPU and memory, with a curve for each GPU.
import { curveColour } from "./colours.js";
import { Panels } from "./panels.js";
import { onScale, Plot } from "./plot.js";
import { smooth } from "./series.js";

class LoadChart extends Plot {
  get curves() {
    return this.charts.data.charts[this.name];
  }

  plan() {
    const { data, view } = this.charts;
    const tables = this.curves.map(({ values }) => [
      data.times, smooth(values, view.smooth).map((value) => onScale(value, this.isLog)),
    ]);
    const series = this.curves.map(({ label }, i) => ({ label, ink: curveColour(i), stroke: curveColour(i), width: 2 }));
    return { tables, series };
  }

  whyEmpty() {
    return this.curves.some(({ values }) => values.some((value) => value !== null)) ? "" : "No points: no sample has this value.";
  }

  describe() {
    return this.curves.map(({ label, values }) => {
      const value = values.findLast((each) => each !== null) ?? null;
      return `${label}: ${value === null ? "no value" : this.format(value)}`;
    }).join("; ");
  }
}

class LoadPanels extends Panels {
  constructor(section) {
    super(section);
    this.data = JSON.parse(document.getElementById("load-curves").textContent);
    for (const name of Object.keys(this.data.charts)) {
      const chart = new LoadChart(this, name, this.template);
      this.cards.set(name, chart);
      this.seen.observe(chart.card);
    }
    this.arrange();
  }

  get axis() {
    return "time";
  }
}

const section = document.getElementById("charts");
if (section) new LoadPanels(section);
