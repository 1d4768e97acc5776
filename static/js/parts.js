// The parts of a page that the server renders anew once what they show has changed.
import { swap } from "./swap.js";

const partsOf = (page) => [...page.querySelectorAll("[data-part]")];

// Returns the names of the parts with the digests of what the page shows: `have` in a request.
export const digestsOf = (page) => partsOf(page).map(({ dataset }) => `${dataset.part}:${dataset.digest}`).join(",");

// Puts newer parts in the place of those of the page; `then` is called with each.
export function takeParts(page, newer, then) {
  for (const part of partsOf(page)) {
    const newest = newer[part.dataset.part];
    if (!newest) continue;
    part.dataset.digest = newest.digest;
    swap(part, newest.html);
    then(part);
  }
}
