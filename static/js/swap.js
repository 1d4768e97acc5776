// Puts new HTML in the place of old, and the focus, the folds and the scrolling back where they were.
import { tick } from "./clock.js";

export function swap(element, html) {
  const focused = element.contains(document.activeElement) && document.activeElement.dataset.focus;
  const open = [...element.querySelectorAll("details[open][data-keep]")].map((d) => d.dataset.keep);
  const scrolled = [...element.querySelectorAll(".table-scroll")].map((each) => each.scrollLeft);
  put(element, html);
  open.forEach((name) => element.querySelector(`details[data-keep="${name}"]`)?.setAttribute("open", ""));
  element.querySelectorAll(".table-scroll").forEach((each, i) => (each.scrollLeft = scrolled[i] || 0));
  if (focused) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  tick(element);
}

// A child that is kept stays as it is, with its listeners and its focus.
function put(element, html) {
  const kept = element.querySelector(":scope > [data-kept]");
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  const place = kept && fresh.content.getElementById(kept.id);
  if (!place) return element.replaceChildren(fresh.content);
  for (const each of [...element.childNodes]) if (each !== kept) each.remove();
  const nodes = [...fresh.content.childNodes], at = nodes.indexOf(place);
  kept.before(...nodes.slice(0, at));
  kept.after(...nodes.slice(at + 1));
}
