// The keyboard: / n g j k x Enter r c ?. Off while somebody types, and while a dialog is open.
import { open } from "./dialogs.js";

const GO = { r: "/", s: "/studies/", d: "/datasets/", c: "/checkpoints/", w: "/workers/" };
const SEARCH = "#search"; // of the address of the list, when it is opened to search
let wentAt = 0;

const rows = () => [...document.querySelectorAll("table.operations tbody tr")];
const current = () => document.querySelector("table.operations tr.current");

function isTyping(target) {
  return target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;
}

function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(current());
  const next = all[Math.min(all.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  current()?.classList.remove("current");
  next.classList.add("current");
  next.querySelector("a.name").focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

// On a row of the list, or on the page of one operation.
function act(action) {
  const scope = current() || document.getElementById("operation");
  scope?.querySelector(`[data-action="${action}"]:not([inert])`)?.click();
}

function search() {
  const input = document.getElementById("search");
  if (!input) return location.assign(`/${SEARCH}`);
  input.focus();
  input.select();
}

const KEYS = {
  "/": search,
  n: () => "maySubmit" in document.body.dataset && location.assign("/operations/new"),
  g: () => (wentAt = Date.now()),
  j: () => move(1),
  k: () => move(-1),
  x: () => current()?.querySelector("input[type=checkbox]").click(),
  r: () => act("resume"),
  c: () => act("cancel"),
  "?": () => open("/help/keys"),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  const goes = Date.now() - wentAt < 1500 && GO[event.key];
  wentAt = 0;
  if (goes) return location.assign(goes);
  const act = KEYS[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-focus-search]")) search();
});

if (location.hash === SEARCH && document.getElementById("search")) {
  history.replaceState(history.state, "", location.pathname + location.search);
  search();
}
