// The counts of the menu, kept true: by the answers of a page that follows something, else by their own.
import { getJSON, getText } from "./ask.js";
import { follow } from "./follow.js";
import { poll } from "./poll.js";

const ADDRESS = "/menu/counts";
const EVERY = 5000;
let isFollowed = false;

export function showCounts(counts) {
  for (const badge of document.querySelectorAll("[data-count-of]")) {
    const count = counts[badge.dataset.countOf];
    badge.hidden = !count;
    badge.querySelector("[data-number]").textContent = count.toLocaleString("en");
  }
}

// A page has one stream at most: a browser allows few of them.
export function followCounts() {
  if (isFollowed) return;
  isFollowed = true;
  if (document.querySelector("[data-refresh]")) {
    poll(async () => showCounts(await getJSON(ADDRESS)), EVERY, { isOfPage: false });
  } else {
    follow({ address: () => ADDRESS, ask: getText, show: (text) => showCounts(JSON.parse(text)), every: EVERY, isOfPage: false });
  }
}
