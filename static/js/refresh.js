// A part of a page that is replaced as a whole when it changes.
import { getText } from "./ask.js";
import { follow } from "./follow.js";
import { swap } from "./swap.js";

export function refresh(element) {
  let last = "";
  const show = (html) => {
    const said = html.replace(/(<time [^>]*>)[^<]*/g, "$1"); // the page keeps times true by itself
    if (said !== last && last) swap(element, html);
    last = said;
  };
  const following = follow({ address: () => element.dataset.refresh, ask: getText, show, every: 5000 });
  document.addEventListener("acted", following.renew); // what was done is seen at once
}
