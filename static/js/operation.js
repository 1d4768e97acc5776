// The page of one operation, live: one small question, and what changed is put in its place.
import { getJSON } from "./ask.js";
import { Charts } from "./charts.js";
import { startLog } from "./log.js";
import { poll } from "./poll.js";
import { swap } from "./swap.js";
import { startTabs } from "./tabs.js";

const EVERY = 1500;
const page = document.getElementById("operation");
const charts = new Charts(document.getElementById("charts"));
const appendLog = startLog(
  document.getElementById("log"),
  document.getElementById("follow"),
  document.querySelector(".log-empty"),
);
const last = { points: 0, log: Number(page.dataset.log) };

// Have the script of a panel, if it has one, draw what is no HTML.
async function draw(part) {
  if (!part.dataset.script) return;
  const script = await import(part.dataset.script);
  script.draw(part);
}

async function ask() {
  const parts = [...page.querySelectorAll("[data-part]")];
  const have = parts.map((part) => `${part.dataset.part}:${part.dataset.digest}`).join(",");
  const query = new URLSearchParams({ have, points: last.points, log: last.log });
  const answer = await getJSON(`${page.dataset.live}?${query}`);
  for (const part of parts) {
    const news = answer.parts[part.dataset.part];
    if (!news) continue;
    part.dataset.digest = news.digest;
    swap(part, news.html);
    draw(part);
  }
  page.dataset.state = answer.state;
  last.points = answer.points.last;
  last.log = answer.log.at(-1)?.id ?? last.log;
  appendLog(answer.log);
  charts.add(answer.points.series, answer.starts);
  return !answer.settled;
}

page.querySelectorAll("[data-script]").forEach(draw);
startTabs(document.querySelector("[data-hash-tabs]"));
const polling = poll(ask, EVERY);
polling.now();
document.addEventListener("acted", polling.start); // after a resume a settled page lives again
