// Puts new HTML in the place of old, and the focus, the folds and the scrolling back where they were.
import { tick } from "./clock.js";

export function swap(element, html) {
  const focused = element.contains(document.activeElement) && document.activeElement.dataset.focus;
  const open = [...element.querySelectorAll("details[open][data-keep]")].map((d) => d.dataset.keep);
  const scrolled = [...element.querySelectorAll(".table-scroll")].map((each) => each.scrollLeft);
  element.innerHTML = html;
  open.forEach((name) => element.querySelector(`details[data-keep="${name}"]`)?.setAttribute("open", ""));
  element.querySelectorAll(".table-scroll").forEach((each, i) => (each.scrollLeft = scrolled[i] || 0));
  if (focused) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  tick(element);
}
