// The curves of one operation, drawn anew when their data, their settings or the theme change.
import { getJSON } from "./ask.js";
import { Chart } from "./chart.js";
import { CurvePanels } from "./curve_panels.js";
import { Curves } from "./curves.js";
import { chartOf } from "./series.js";

export class Charts extends CurvePanels {
  constructor(section) {
    super(section, Chart);
    this.only = new Curves();
  }

  get curves() {
    return [this.only];
  }

  cardOf(name) {
    return chartOf(name);
  }

  add(points, standing) {
    this.show(this.only.add(points, standing));
    this.section.querySelector("#dashed-note").hidden = !this.only.hasRetired;
  }

  csvOf(chart) {
    return `${this.section.dataset.points}.csv?${new URLSearchParams({ name: chart.names })}`;
  }

  async fetchDetails(names, [{ curves, first, last }]) {
    const query = new URLSearchParams({ name: names });
    if (first > 0) query.set("after_step", first - 1);
    if (last < Infinity) query.set("to_step", last);
    const { series } = await getJSON(`${this.section.dataset.points}?${query}`);
    return new Map([[curves, series]]);
  }
}
