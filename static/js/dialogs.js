// Links with data-dialog open what they point to in the one <dialog>; forms with data-post are
// sent without leaving the page. Without this script both are plain pages.
import { getText, post } from "./ask.js";
import { tick } from "./clock.js";
import { toast } from "./toasts.js";

const SLOWEST = 30_000; // milliseconds between two looks whether the server is back
const CHECKED = "answer-was-lost"; // in the session storage: said after the page was loaded again
const dialog = document.getElementById("dialog");

export async function open(url) {
  if (dialog.open) return;
  try {
    show(await getText(url));
  } catch (error) {
    toast(error.message, "error");
  }
}

function show(html) {
  dialog.innerHTML = html;
  tick(dialog);
  showModal();
}

function showModal() {
  dialog.showModal();
  const first = dialog.querySelector("input[type=radio]:checked, button:not([data-close])");
  const isDangerous = first?.matches(".btn-danger"); // Enter must not do it
  (isDangerous || !first ? dialog.querySelector("[data-close]") : first)?.focus();
}

// A question that needs no page of its own: the form has its text, its title and its verb.
function ask(form) {
  const question = document.createElement("div");
  question.innerHTML = `<h2 class="dialog-title" id="dialog-title"></h2><p class="dialog-text"></p>
    <div class="dialog-buttons"><button type="button" class="btn" data-close></button>
    <button type="button" class="btn btn-danger" data-testid="confirm-yes"></button></div>`;
  const { ask: text, askTitle: title, askVerb: verb } = form.dataset;
  const yes = question.querySelector(".btn-danger");
  if ("askSafe" in form.dataset) yes.classList.replace("btn-danger", "btn-primary");
  question.querySelector("h2").textContent = title;
  question.querySelector("p").textContent = text;
  yes.textContent = verb;
  question.querySelector("[data-close]").textContent = verb.startsWith("Cancel") ? "Don't cancel" : "Cancel";
  const fields = form.querySelector("template"); // what is chosen in the question
  if (fields) question.querySelector("p").after(fields.content.cloneNode(true));
  yes.addEventListener("click", () => {
    dialog.close();
    submit(form, question.querySelectorAll("input:checked"));
  });
  dialog.replaceChildren(question);
  showModal();
}

async function submit(form, chosen = []) {
  const data = new FormData(form);
  chosen.forEach((each) => data.append(each.name, each.value));
  const buttons = form.querySelectorAll("button:not([data-close])");
  buttons.forEach((button) => (button.disabled = true));
  try {
    const answer = await post(form.action, data);
    if (answer.go) return location.assign(answer.go);
    const problem = answer.level === "error" && form.querySelector("[data-problem]");
    if (problem) { // the form stays open with what was typed
      problem.textContent = answer.message;
      problem.hidden = false;
      return;
    }
    if (dialog.open) dialog.close();
    if (answer.level !== "error") form.reset(); // what was typed was sent
    toast(answer.message, answer.level, answer.details);
    document.dispatchEvent(new CustomEvent("acted", { detail: answer }));
    if ("reload" in form.dataset && answer.level !== "error") location.reload();
  } catch {
    await seeWhatHappened();
  } finally {
    buttons.forEach((button) => (button.disabled = false));
  }
}

// The answer was cut off, so the request may have been carried out or not: only the server knows.
async function seeWhatHappened() {
  toast("The connection was lost, so the request may or may not have been carried out. Checking…", "warning");
  for (let wait = 500; ; wait = Math.min(2 * wait, SLOWEST)) {
    const status = await statusOf(location.href);
    if (status) {
      sessionStorage.setItem(CHECKED, "1");
      return status === 404 ? location.assign("/") : location.reload();
    }
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

async function statusOf(url) {
  try {
    const response = await fetch(url, { credentials: "same-origin", cache: "no-store" });
    return response.status < 500 ? response.status : 0;
  } catch {
    return 0;
  }
}

if (sessionStorage.getItem(CHECKED)) {
  sessionStorage.removeItem(CHECKED);
  toast("The response to your last request was lost. This page shows the current state.", "warning");
}

document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const link = event.target.closest("[data-dialog]");
  if (link) {
    event.preventDefault();
    open(link.getAttribute("href"));
  } else if (dialog.open && (event.target === dialog || event.target.closest("[data-close]"))) {
    event.preventDefault();
    dialog.close();
  }
});

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!("post" in form.dataset)) return;
  event.preventDefault();
  if (form.dataset.ask) ask(form);
  else submit(form);
});
