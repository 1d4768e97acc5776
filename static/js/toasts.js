// One line in the corner. Successes go by themselves; errors wait to be read.

const SECONDS = { success: 6, info: 6, warning: 12 };

export function toast(message, level = "success", details = []) {
  const line = document.createElement("div");
  line.className = `toast-line toast-${level}`;
  line.dataset.testid = "toast";
  const text = document.createElement("span");
  text.textContent = [message, ...details].join(" ");
  const close = document.createElement("button");
  close.type = "button";
  close.className = "btn-close";
  close.dataset.dismiss = "";
  close.setAttribute("aria-label", "Dismiss");
  line.append(text, close);
  document.getElementById("toasts").append(line);
  leaveLater(line, level);
}

function leaveLater(line, level) {
  if (SECONDS[level]) setTimeout(() => line.remove(), SECONDS[level] * 1000);
}

export function adopt(container) {
  if (!container) return;
  container.addEventListener("click", (event) => {
    event.target.closest("[data-dismiss]")?.closest(".toast-line").remove();
  });
  for (const line of container.children) {
    const level = Object.keys(SECONDS).find((name) => line.classList.contains(`toast-${name}`));
    leaveLater(line, level);
  }
}
