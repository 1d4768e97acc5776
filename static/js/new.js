// The form of a new operation: its recipes, and tables that are uploaded beside it and chosen.
import { csrfToken } from "./ask.js";
import { startPicker } from "./picker.js";
import { explain, upload } from "./uploads.js";

document.addEventListener("htmx:configRequest", ({ detail }) => {
  detail.headers["X-CSRFToken"] = csrfToken();
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-upload]") && event.target.files.length) send(event.target);
});

async function send(input) {
  const state = document.querySelector("[data-upload-state]");
  const file = input.files[0];
  state.classList.remove("text-danger");
  state.textContent = `Uploading ${file.name} …`;
  input.value = "";
  try {
    const { id, name, num_rows: rows } = await upload(file, "", (text) => (state.textContent = text));
    choose({ id, label: `${name} (${rows.toLocaleString("en-US")} ${rows === 1 ? "row" : "rows"})` });
  } catch (error) {
    refuse(state, explain(error));
  }
}

function refuse(state, message) {
  state.textContent = message;
  state.classList.add("text-danger");
}

function choose({ id, label }) {
  const select = document.querySelector("[data-dataset]");
  if (![...select.options].some((option) => option.value === id)) select.add(new Option(label, id));
  select.value = id;
  select.dispatchEvent(new Event("change", { bubbles: true })); // brings the columns
}

const startPickers = (editor) => editor?.querySelectorAll("#picker").forEach(startPicker);

document.addEventListener("htmx:afterSwap", ({ detail }) => {
  if (detail.target.id === "editor") startPickers(detail.target);
});
startPickers(document.getElementById("editor"));
document.querySelector(".is-invalid")?.focus();
