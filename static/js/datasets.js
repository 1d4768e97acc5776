// The upload form: sends the file in parts, with a progress bar. Without scripts it is a plain form.
import { explain, upload } from "./uploads.js";

const form = document.querySelector("[data-upload-form]");
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  send(form);
});

async function send(form) {
  const button = form.querySelector("[data-testid=upload]");
  const bar = form.querySelector("[data-upload-bar]");
  const state = form.querySelector("[data-upload-state]");
  const show = (text, fraction) => {
    state.textContent = text;
    if (fraction !== undefined) bar.value = fraction;
  };
  button.disabled = true;
  bar.hidden = false;
  state.classList.remove("text-danger");
  try {
    const { file, name, is_text: isText } = form.elements;
    const dataset = await upload(file.files[0], name.value, show, isText.checked);
    location.assign(`/datasets/${dataset.id}/`);
  } catch (error) {
    show(explain(error), 0);
    state.classList.add("text-danger");
    bar.hidden = true;
    button.disabled = false;
  }
}
