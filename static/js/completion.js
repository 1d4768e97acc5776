// Completions of the query and of the columns, offered by the browser's own list below the field.
import { getJSON } from "./ask.js";

const PARAMETERS = { search: "q", columns: "columns" }; // by the id of the field
const asked = {};

document.addEventListener("input", async ({ target }) => {
  const parameter = PARAMETERS[target.id];
  if (!parameter || target.value === asked[target.id]) return;
  const text = (asked[target.id] = target.value);
  const query = new URLSearchParams({ [parameter]: text });
  const { completions } = await getJSON(`/operations/completions?${query}`);
  if (asked[target.id] !== text) return; // more was typed meanwhile
  const options = completions.map((value) => Object.assign(document.createElement("option"), { value }));
  target.list.replaceChildren(...options);
});
