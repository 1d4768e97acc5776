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

// A setting that is chosen to be changed comes from below to the others. Not at once: arrow keys change a
// closed list, too.
document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-show-setting]")) showSetting(document.querySelector("[data-other-setting]"));
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !event.target.matches("[data-other-setting]") || !event.target.value) return;
  event.preventDefault(); // the form is not submitted
  showSetting(event.target);
});

function showSetting(choice) {
  if (!choice.value) return choice.focus();
  const field = document.querySelector(`.advanced [data-field="${CSS.escape(choice.value)}"]`);
  const option = choice.selectedOptions[0];
  field.querySelector("[data-label]").textContent = option.dataset.label;
  document.querySelector("[data-chosen-settings]").append(field);
  option.remove();
  choice.value = "";
  field.querySelector("input, select, textarea").focus();
}

// Another row for a field of a study: the last one again, blank, with the next number.
document.addEventListener("click", ({ target }) => {
  const button = target.closest("[data-add-try]");
  if (!button) return;
  const rows = button.parentElement.querySelector("[data-try-rows]"), number = rows.children.length;
  const row = rows.lastElementChild.cloneNode(true);
  row.setAttribute("aria-label", `Field ${number + 1} to try`);
  for (const element of row.querySelectorAll("[name], [for]")) {
    for (const name of ["id", "name", "for"]) {
      const text = element.getAttribute(name);
      if (text) element.setAttribute(name, text.replace(/([.-])\d+(?=\.|$)/, `$1${number}`));
    }
    if (element.matches("input")) element.value = "";
    else if (element.matches("select")) element.selectedIndex = 0;
  }
  rows.append(row);
  button.hidden = number + 1 >= Number(button.dataset.max);
  row.querySelector("select").focus();
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
