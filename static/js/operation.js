// The page of one operation, live: what changed is put in its place.
import { getText } from "./ask.js";
import { Charts } from "./charts.js";
import { follow } from "./follow.js";
import { LogViewer } from "./log.js";
import { Media } from "./media.js";
import { followCounts, showCounts } from "./menu.js";
import { isOn, notifyOfEnd, phaseOf, showInTab } from "./notify.js";
import { digestsOf, takeParts } from "./parts.js";
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
  script.draw(part, charts.only);
}

function address() {
  return `${page.dataset.live}?${new URLSearchParams({ have: digestsOf(page), points: last.points })}`;
}

function show(text) {
  const answer = JSON.parse(text);
  takeParts(page, answer.parts, draw);
  notifyOfEnd(title, page.dataset.id, page.dataset.state, answer.state);
  showInTab(title, answer.state, answer.percent);
  page.dataset.state = answer.state;
  last.points = answer.points.last;
  log.announce(answer.log, answer.settled);
  media.announce(answer.media);
  charts.add(answer.points, answer.standing);
  charts.explain(phaseOf(answer.state));
  document.dispatchEvent(new Event("measured")); // for panels
  showCounts(answer.menu);
  if (answer.settled) followCounts(); // nothing else is followed any more
  return !answer.settled;
}

page.querySelectorAll("[data-script]").forEach(draw);
charts.explain(phaseOf(page.dataset.state));
startTabs(document.querySelector("[data-hash-tabs]"));
document.addEventListener("gone", () => {
  showInTab(title, "DELETED", 0);
  log.end();
});
const following = follow({ address, ask: getText, show, every: EVERY, whileHidden: isOn });
document.addEventListener("acted", following.start); // after a resume a settled page lives again
