// Says in words that what the page follows was deleted. What it showed stays; nothing can be done with it.
import { followCounts } from "./menu.js";

const note = document.getElementById("gone");

document.addEventListener("gone", () => {
  const page = document.querySelector("[data-gone]");
  if (!page || !note.hidden) return;
  note.querySelector("strong").textContent = page.dataset.gone;
  note.hidden = false;
  page.classList.add("is-gone");
  page.querySelectorAll("form, [data-action]").forEach((each) => (each.inert = true));
  followCounts(); // the page itself follows nothing any more
});
