// Chosen checkpoints: how many they are, and the question before they are deleted.
import { open } from "./dialogs.js";

const form = document.getElementById("chosen");
const boxes = () => [...document.querySelectorAll("input[form=chosen]")];
const every = document.getElementById("all-checkpoints");

function show() {
  const chosen = boxes().filter((box) => box.checked);
  form.hidden = chosen.length === 0;
  form.querySelector("[data-selected-text]").textContent = `${chosen.length} selected`;
  every.hidden = boxes().length === 0;
  every.checked = chosen.length > 0 && chosen.length === boxes().length;
  every.indeterminate = chosen.length > 0 && !every.checked;
  for (const box of boxes()) box.closest("tr").classList.toggle("selected", box.checked);
}

if (form) {
  every.addEventListener("change", () => {
    for (const box of boxes()) box.checked = every.checked;
    show();
  });
  document.addEventListener("change", (event) => event.target.form === form && show());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    open(`${form.action}?${new URLSearchParams(new FormData(form))}`);
  });
  addEventListener("pageshow", show);
  show();
}
