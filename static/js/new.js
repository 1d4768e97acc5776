// The form of a new operation: uploads a table beside it and chooses it.
import { csrfToken } from "./ask.js";

document.addEventListener("htmx:configRequest", ({ detail }) => {
  detail.headers["X-CSRFToken"] = csrfToken();
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-upload]") && event.target.files.length) upload(event.target);
});

// XMLHttpRequest, because fetch cannot tell how much of a large file has left.
function upload(input) {
  const state = document.querySelector("[data-upload-state]");
  const file = input.files[0];
  const body = new FormData();
  body.append("file", file);
  const request = new XMLHttpRequest();
  request.open("POST", "/datasets/upload");
  request.setRequestHeader("X-CSRFToken", csrfToken());
  request.setRequestHeader("X-Requested-With", "fetch");
  request.responseType = "json";
  request.upload.onprogress = ({ loaded, total }) => {
    const percent = Math.round((100 * loaded) / total);
    state.textContent = percent < 100 ? `Uploading ${file.name}: ${percent} %` : `Reading ${file.name} …`;
  };
  request.onerror = () => refuse(state, "The upload broke off; choose the file again.");
  request.onload = () => {
    const answer = request.response || { message: `The server answered ${request.status}.` };
    if (request.status === 200) choose(answer);
    else refuse(state, answer.message);
  };
  state.classList.remove("text-danger");
  state.textContent = `Uploading ${file.name} …`;
  input.value = "";
  request.send(body);
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

document.querySelector(".is-invalid")?.focus();
