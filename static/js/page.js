// What every page has: ticking times, dialogs, toasts, keys, the theme's button.
import "./clock.js";
import "./copy.js";
import "./dialogs.js";
import "./gone.js";
import "./keys.js";
import { followCounts } from "./menu.js";
import { refresh } from "./refresh.js";
import { adopt } from "./toasts.js";

const THEMES = { auto: "follows the system", light: "is light", dark: "is dark" };

function showTheme(button) {
  const theme = window.trainopsTheme.chosen();
  button.textContent = `Theme: ${theme}`;
  button.title = `The theme ${THEMES[theme]}`;
}

const button = document.getElementById("theme");
if (button) {
  showTheme(button);
  button.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(window.trainopsTheme.chosen()) + 1) % names.length];
    window.trainopsTheme.choose(next);
    showTheme(button);
  });
}

const tour = () => import("./tour.js").then(({ start }) => start());
if ("tour" in document.body.dataset) tour();
document.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey || !event.target.closest("[data-tour-start]")) return;
  event.preventDefault();
  document.querySelector("dialog[open]")?.close();
  tour();
});

adopt(document.getElementById("toasts"));
document.querySelectorAll("[data-refresh]").forEach(refresh);
if (document.querySelector("[data-count-of]") && !document.querySelector("[data-live]")) followCounts();
document.querySelectorAll("[data-select]").forEach((input) => {
  input.addEventListener("focus", () => input.select());
});

// htmx leaves out what says nothing, so that the address stays short.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  if (detail.verb !== "get") return;
  for (const [name, value] of [...detail.formData.entries()]) {
    if (value === "") detail.formData.delete(name);
  }
});
