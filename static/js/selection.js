// Ticked rows, and what can be done with all of them at once.
import { open } from "./dialogs.js";

const ticked = () => [...document.querySelectorAll("table.operations tbody input[type=checkbox]:checked")];

function show() {
  const bar = document.getElementById("selection");
  if (!bar) return;
  const chosen = ticked();
  bar.hidden = chosen.length === 0;
  bar.querySelector("[data-selected]").textContent = chosen.length;
  const all = document.querySelectorAll("table.operations tbody input[type=checkbox]");
  const every = document.getElementById("select-all");
  if (every) {
    every.checked = chosen.length > 0 && chosen.length === all.length;
    every.indeterminate = chosen.length > 0 && chosen.length < all.length;
  }
  for (const box of all) box.closest("tr").classList.toggle("selected", box.checked);
}

export function clear() {
  ticked().forEach((box) => (box.checked = false));
  show();
}

document.addEventListener("change", (event) => {
  if (event.target.id === "select-all") {
    const boxes = document.querySelectorAll("table.operations tbody input[type=checkbox]");
    boxes.forEach((box) => (box.checked = event.target.checked));
  }
  if (event.target.closest("table.operations")) show();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-clear]")) clear();
  const action = event.target.closest("[data-bulk]")?.dataset.bulk;
  if (!action) return;
  const query = new URLSearchParams(ticked().map((box) => ["id", box.value]));
  query.append("next", location.pathname + location.search);
  open(`/operations/confirm/${action}?${query}`);
});

document.addEventListener("htmx:afterSwap", show);
document.addEventListener("acted", ({ detail }) => detail.level === "success" && clear());
