// The list, live: rows change where they stand, new ones wait behind a button.
import { getText } from "./ask.js";
import { tick } from "./clock.js";
import "./completion.js";
import { follow } from "./follow.js";
import { showCounts } from "./menu.js";
import "./selection.js";

const EVERY = 2000;

let list = null; // of the latest address

function address() {
  list = document.getElementById("list");
  const rows = [...list.querySelectorAll("tr[data-id]")];
  const query = new URLSearchParams({
    rows: rows.map((row) => `${row.dataset.id}:${row.dataset.digest}`).join(","),
    top: list.dataset.top,
  });
  const joint = list.dataset.live.includes("?") ? "&" : "?";
  return `${list.dataset.live}${joint}${query}`;
}

function show(text) {
  // Another page or filter was chosen while this answer was under way: it is not about these rows.
  if (!list.isConnected) return;
  const answer = JSON.parse(text);
  for (const row of list.querySelectorAll("tr[data-id]")) {
    const newest = answer.rows[row.dataset.id];
    if (newest) redraw(row, newest);
  }
  for (const id of answer.gone) {
    const row = list.querySelector(`tr[data-id="${CSS.escape(id)}"]`);
    if (row && !row.classList.contains("gone")) showGone(row);
  }
  for (const [tab, count] of Object.entries(answer.counts)) {
    const badge = document.querySelector(`[data-count="${tab}"]`);
    if (badge) badge.textContent = count;
  }
  document.getElementById("summary").textContent = answer.summary;
  showCounts(answer.menu);
  const waiting = document.getElementById("new-ones");
  waiting.hidden = answer.new === 0;
  waiting.querySelector("[data-new]").textContent = answer.new > 99 ? "99+" : answer.new;
}

// It keeps its place, so that nothing moves under the cursor.
function showGone(row) {
  row.classList.add("gone");
  row.querySelectorAll("input, .cell-action a").forEach((each) => each.remove());
  const note = document.createElement("span");
  note.className = "gone-note";
  note.textContent = "deleted";
  row.querySelector(".cell-name .cell-line").append(note);
}

// The box in front stays: it may be ticked, or have the focus.
function redraw(row, { html, digest }) {
  const focused = row.contains(document.activeElement) && document.activeElement.dataset.focus;
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  while (row.cells.length > 1) row.deleteCell(-1);
  row.append(fresh.content);
  row.dataset.digest = digest;
  tick(row);
  if (focused) row.querySelector(`[data-focus="${focused}"]`)?.focus({ preventScroll: true });
}

// A tab is a field of the form like the others: what was typed a moment ago is not lost.
function choose(tab) {
  const form = document.getElementById("filters");
  form.elements.tab.value = tab.dataset.tab;
  form.requestSubmit();
}

document.addEventListener("click", (event) => {
  const tab = event.target.closest("#tabs a");
  if (!tab || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  choose(tab);
});

// An answer that arrives while a tab is pressed replaces the tab: then there is no click.
let pressed = null;
document.addEventListener("pointerdown", ({ target, button }) => {
  pressed = button === 0 ? target.closest("#tabs a") : null;
});
document.addEventListener("pointerup", ({ target }) => {
  const tab = target.closest("#tabs a");
  if (tab && pressed && !pressed.isConnected && tab.dataset.tab === pressed.dataset.tab) choose(tab);
});

const following = follow({ address, ask: getText, show, every: EVERY });
document.addEventListener("acted", following.start);
document.addEventListener("htmx:afterSettle", () => list.isConnected || following.renew());
