// A part of a page that is replaced as a whole when it changes.
import { getText } from "./ask.js";
import { follow } from "./follow.js";
import { swap } from "./swap.js";

export function refresh(element) {
  let isSettled = "settled" in element.dataset, last = "";
  const show = (html) => {
    const said = html.replace(/(<time [^>]*>)[^<]*/g, "$1"); // the page keeps times true by itself
    if (said !== last && (last || isSettled)) swap(element, html);
    last = said;
    if (isSettled && element.querySelector("[data-active]")) {
      isSettled = false;
      document.dispatchEvent(new Event("resumed"));
    }
    return !isSettled;
  };
  const following = follow({ address: () => element.dataset.refresh, ask: getText, show, every: 5000, isSettled });
  document.addEventListener("acted", following.renew); // what was done is seen at once
}
