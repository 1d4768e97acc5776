// A part of a page that is fetched again every few seconds, as it is.
import { getText } from "./ask.js";
import { poll } from "./poll.js";
import { swap } from "./swap.js";

export function refresh(element) {
  let last = "";
  poll(async () => {
    const html = await getText(element.dataset.refresh);
    if (html !== last && last) swap(element, html);
    last = html;
  }, 5000);
}
