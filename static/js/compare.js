// The page that compares operations, live: their progress and their curves by a stream, their values now
// and then.
import { getJSON, getText } from "./ask.js";
import { ComparedCharts } from "./compared_charts.js";
import { follow } from "./follow.js";
import { digestsOf, takeParts } from "./parts.js";
import { poll } from "./poll.js";
import { relations } from "./relations.js";
import { swap } from "./swap.js";

const EVERY = 1500, VALUES_EVERY = 10_000; // milliseconds
const page = document.getElementById("compare");
const charts = new ComparedCharts(document.getElementById("charts"));
const values = document.getElementById("compared-values");
let isSettled = "settled" in page.dataset, { version } = page.dataset;

function address() {
  return `${page.dataset.follow}&${new URLSearchParams({ have: digestsOf(page), points: charts.position })}`;
}

// Deleted operations keep the names that the page knows of them. An id that it never knew may be wrong.
const names = new Map([...page.querySelectorAll("[data-part=operations] tr[data-id]")].map((row) => [row.dataset.id, row.querySelector(".name").textContent]));
let numLeft = names.size;

function nameDeleted(part) {
  for (const why of part.querySelectorAll("[data-why]")) {
    const missing = [...why.closest("tr, p").querySelectorAll("[data-deleted]")];
    for (const each of missing) each.textContent = names.get(each.dataset.deleted) ?? each.dataset.deleted;
    if (missing.every(({ dataset }) => names.has(dataset.deleted))) why.textContent = why.dataset.why;
  }
}

function show(text) {
  const answer = JSON.parse(text);
  takeParts(page, answer.parts, nameDeleted);
  charts.take(answer.operations);
  charts.explain(answer.settled ? "ended" : "running");
  const isOther = answer.settled !== isSettled || answer.operations.length !== numLeft;
  [isSettled, numLeft] = [answer.settled, answer.operations.length];
  if (isOther) newer.start(); // the last values, or those of the others
  return !isSettled;
}

async function showValues() {
  const answer = await getJSON(`${page.dataset.values}&${new URLSearchParams({ have: version })}`);
  if (answer.version !== version) {
    version = answer.version;
    swap(values, answer.html);
    relations.take(answer.relations);
  }
  return !isSettled;
}

const newer = poll(showValues, VALUES_EVERY);
if (isSettled) newer.stop();
follow({ address, ask: getText, show, every: EVERY });
