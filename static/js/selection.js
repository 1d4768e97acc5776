// Ticked rows, and what can be done with all of them at once.
import { open } from "./dialogs.js";

const ticked = () => [...document.querySelectorAll("table.operations tbody input[type=checkbox]:checked")];

let isMatching = false; // everything that matches is selected, also what other pages show

function show() {
  const bar = document.getElementById("selection");
  if (!bar) return;
  const chosen = ticked();
  bar.hidden = chosen.length === 0;
  const matching = bar.querySelector("[data-matching]");
  const total = Number(matching.dataset.matching);
  bar.querySelector("[data-selected]").textContent = isMatching ? total : chosen.length;
  const compare = bar.querySelector("[data-compare]");
  compare.disabled = chosen.length < 2 || chosen.length > Number(compare.dataset.compare);
  const all = document.querySelectorAll("table.operations tbody input[type=checkbox]");
  matching.hidden = isMatching || chosen.length < all.length || total <= all.length;
  const every = document.getElementById("select-all");
  if (every) {
    every.checked = chosen.length > 0 && chosen.length === all.length;
    every.indeterminate = chosen.length > 0 && chosen.length < all.length;
  }
  for (const box of all) box.closest("tr").classList.toggle("selected", box.checked);
}

export function clear() {
  isMatching = false;
  ticked().forEach((box) => (box.checked = false));
  show();
}

document.addEventListener("change", (event) => {
  if (event.target.id === "select-all") {
    const boxes = document.querySelectorAll("table.operations tbody input[type=checkbox]");
    boxes.forEach((box) => (box.checked = event.target.checked));
  }
  if (!event.target.closest("table.operations")) return;
  isMatching = false;
  show();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-clear]")) clear();
  if (event.target.closest("[data-matching]")) {
    isMatching = true;
    show();
  }
  if (event.target.closest("[data-compare]")) {
    location.assign(`/compare/?ids=${ticked().map((box) => box.value).join(",")}`);
  }
  const action = event.target.closest("[data-bulk]")?.dataset.bulk;
  if (!action) return;
  const ids = new URLSearchParams(ticked().map((box) => ["id", box.value]));
  const query = isMatching ? new URLSearchParams(`${location.search.slice(1)}&matching=1`) : ids;
  query.append("next", location.pathname + location.search);
  open(`/operations/confirm/${action}?${query}`);
});

document.addEventListener("htmx:afterSwap", () => {
  isMatching = false;
  show();
});
document.addEventListener("acted", ({ detail }) => detail.level === "success" && clear());
// Boxes can be ticked before this ran, also by the browser on the way back to the page.
addEventListener("pageshow", show);
show();
