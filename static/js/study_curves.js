// The curves of a study's operations: of the best, or of the latest.
import { getJSON } from "./ask.js";
import { ComparedCharts } from "./compared_charts.js";
import { poll } from "./poll.js";

const EVERY = 5000; // milliseconds
const section = document.getElementById("charts");
const charts = new ComparedCharts(section);
const choice = section.querySelector("#curves-of");

async function load() {
  const chosen = choice.value;
  const answer = await getJSON(`${section.dataset.source}?${new URLSearchParams({ of: chosen, points: charts.position })}`);
  if (chosen === choice.value) charts.take(answer.operations);
  charts.explain(answer.is_active ? "running" : "ended");
  return answer.is_active;
}

const asking = poll(load, EVERY);
choice.addEventListener("change", asking.start);
for (const name of ["acted", "resumed"]) document.addEventListener(name, asking.start); // it has newer points again
asking.now();
