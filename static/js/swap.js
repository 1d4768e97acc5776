// Puts new HTML in the place of old; the focus, the folds, the scrolling and what was typed stay.
import { tick } from "./clock.js";

export function swap(element, html) {
  const focused = element.contains(document.activeElement) && nameOf(document.activeElement);
  const typed = [...element.querySelectorAll("input[id]")].filter((each) => each.value !== each.defaultValue);
  const open = [...element.querySelectorAll("details[open][data-keep]")].map((d) => d.dataset.keep);
  const scrolled = [...element.querySelectorAll(".table-scroll")].map((each) => each.scrollLeft);
  put(element, html);
  open.forEach((name) => element.querySelector(`details[data-keep="${name}"]`)?.setAttribute("open", ""));
  element.querySelectorAll(".table-scroll").forEach((each, i) => (each.scrollLeft = scrolled[i] || 0));
  for (const { id, value } of typed) {
    const field = element.querySelector(`#${CSS.escape(id)}`);
    if (field) field.value = value;
  }
  if (focused) element.querySelector(focused)?.focus({ preventScroll: true });
  tick(element);
}

// Returns the selector that finds an element again in new HTML.
function nameOf({ id, dataset }) {
  if (dataset.focus) return `[data-focus="${CSS.escape(dataset.focus)}"]`;
  return id && `#${CSS.escape(id)}`;
}

// Children that are kept stay as they are, with their listeners and their focus; their order is always
// the same.
function put(element, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const kept = new Map(); // place → child
  for (const child of [...element.childNodes]) {
    const place = child.matches?.("[data-kept]") && fresh.content.getElementById(child.id);
    if (place) kept.set(place, child);
    else child.remove();
  }
  let next = element.firstChild;
  for (const node of [...fresh.content.childNodes]) {
    if (kept.has(node)) next = kept.get(node).nextSibling;
    else element.insertBefore(node, next);
  }
}
