// The page of one operation, live: what changed is put in its place.
import { getText } from "./ask.js";
import { Charts } from "./charts.js";
import { follow } from "./follow.js";
import { LogViewer } from "./log.js";
import { Media } from "./media.js";
import { followCounts, showCounts } from "./menu.js";
import { isOn, notifyOfEnd, showInTab } from "./notify.js";
import { swap } from "./swap.js";
import { startTabs } from "./tabs.js";

const EVERY = 1500;
const page = document.getElementById("operation");
const charts = new Charts(document.getElementById("charts"));
const log = new LogViewer(document.getElementById("log-viewer"));
const media = new Media(document.getElementById("media"), document.getElementById("tab-media"));
const title = document.title;
const last = { points: 0 };

// Have the script of a panel, if it has one, draw what is no HTML.
async function draw(part) {
  if (!part.dataset.script) return;
  const script = await import(part.dataset.script);
  script.draw(part);
}

const partsOfPage = () => [...page.querySelectorAll("[data-part]")];

function address() {
  const have = partsOfPage().map((part) => `${part.dataset.part}:${part.dataset.digest}`).join(",");
  return `${page.dataset.live}?${new URLSearchParams({ have, points: last.points })}`;
}

function show(text) {
  const answer = JSON.parse(text);
  for (const part of partsOfPage()) {
    const newest = answer.parts[part.dataset.part];
    if (!newest) continue;
    part.dataset.digest = newest.digest;
    swap(part, newest.html);
    draw(part);
  }
  notifyOfEnd(title, page.dataset.id, page.dataset.state, answer.state);
  showInTab(title, answer.state, answer.percent);
  page.dataset.state = answer.state;
  last.points = answer.points.last;
  log.announce(answer.log);
  media.announce(answer.media);
  charts.add(answer.points, answer.standing);
  showCounts(answer.menu);
  if (answer.settled) followCounts(); // nothing else is followed any more
  return !answer.settled;
}

page.querySelectorAll("[data-script]").forEach(draw);
startTabs(document.querySelector("[data-hash-tabs]"));
const following = follow({ address, ask: getText, show, every: EVERY, whileHidden: isOn });
document.addEventListener("acted", following.start); // after a resume a settled page lives again
