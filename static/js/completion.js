// Completions of the query, offered by the browser's own list below the field.
import { getJSON } from "./ask.js";

let asked = "";

document.addEventListener("input", async ({ target }) => {
  if (target.id !== "search" || target.value === asked) return;
  const query = (asked = target.value);
  const { completions } = await getJSON(`/operations/completions?${new URLSearchParams({ q: query })}`);
  if (asked !== query) return; // more was typed meanwhile
  const options = completions.map((value) => Object.assign(document.createElement("option"), { value }));
  document.getElementById("completions").replaceChildren(...options);
});
