// A part of a page that is fetched again every few seconds, as it is.
import { getText } from "./ask.js";
import { poll } from "./poll.js";
import { swap } from "./swap.js";

export function refresh(element) {
  let last = "";
  poll(async () => {
    const html = await getText(element.dataset.refresh);
    const said = html.replace(/(<time [^>]*>)[^<]*/g, "$1"); // the page keeps times true by itself
    if (said !== last && last) swap(element, html);
    last = said;
  }, 5000);
}
