// Links with data-dialog open what they point to in the one <dialog>; forms with data-post are
// sent without leaving the page. Without this script both are plain pages.
import { getText, post } from "./ask.js";
import { tick } from "./clock.js";
import { toast } from "./toasts.js";

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
  dialog.showModal();
  const first = dialog.querySelector("input[type=radio]:checked, button:not([data-close])");
  (first || dialog.querySelector("[data-close]"))?.focus();
}

// A question that needs no page of its own: what a form would do, said by the form itself.
function ask(form) {
  const question = document.createElement("div");
  question.innerHTML = `<h2 class="dialog-title" id="dialog-title">Sure?</h2><p class="dialog-text"></p>
    <div class="dialog-buttons"><button type="button" class="btn" data-close>Keep it</button>
    <button type="button" class="btn btn-danger" data-testid="confirm-yes">Go on</button></div>`;
  question.querySelector("p").textContent = form.dataset.ask;
  show("");
  dialog.append(question);
  question.querySelector(".btn-danger").addEventListener("click", () => {
    dialog.close();
    submit(form);
  });
  question.querySelector(".btn-danger").focus();
}

async function submit(form) {
  const buttons = form.querySelectorAll("button:not([data-close])");
  buttons.forEach((button) => (button.disabled = true));
  try {
    const answer = await post(form.action, new FormData(form));
    if (answer.go) return location.assign(answer.go);
    if (dialog.open) dialog.close();
    toast(answer.message, answer.level, answer.details);
    document.dispatchEvent(new CustomEvent("acted", { detail: answer }));
    if ("reload" in form.dataset && answer.level !== "error") location.reload();
  } catch {
    toast("The server did not answer. Nothing was changed; try again.", "error");
  } finally {
    buttons.forEach((button) => (button.disabled = false));
  }
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
