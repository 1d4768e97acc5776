// Keeps <time data-clock> true, in the time zone of the reader. The same words as
// apps/dashboard/formatting.py.
import { clockTime, exact, local } from "./moments.js";

const MINUTE = 60, HOUR = 3600, DAY = 86400, MONTH = 30 * DAY;
const zoned = new WeakSet(); // elements whose title is right

const two = (large, largeUnit, small, smallUnit) =>
  `${large} ${largeUnit}` + (small ? ` ${small} ${smallUnit}` : "");

export function duration(seconds) {
  const whole = Math.round(Math.max(0, seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return two(Math.floor(whole / MINUTE), "min", whole % MINUTE, "s");
  if (whole < DAY) return two(Math.floor(whole / HOUR), "h", Math.floor((whole % HOUR) / MINUTE), "min");
  return two(Math.floor(whole / DAY), "d", Math.floor((whole % DAY) / HOUR), "h");
}

// "ago" is a glance, not a measurement: one unit is enough.
function coarse(seconds) {
  if (seconds < MINUTE) return `${Math.floor(seconds)} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h`;
  return `${Math.floor(seconds / DAY)} d`;
}

function words(at, mode, now) {
  const seconds = (now - at) / 1000;
  if (mode === "at") return clockTime(at, now);
  if (mode === "since") return duration(seconds);
  if (mode === "until") return seconds < 0 ? `in ${duration(-seconds)}` : "any moment now";
  if (seconds >= MONTH) return local(at).day;
  return seconds < 1 ? "just now" : `${coarse(seconds)} ago`;
}

export function tick(root = document) {
  const now = Date.now();
  for (const time of root.querySelectorAll("time[data-clock]")) {
    const at = Date.parse(time.dateTime), text = words(at, time.dataset.clock, now);
    if (time.textContent !== text) time.textContent = text;
    if (zoned.has(time)) continue;
    zoned.add(time);
    if (time.title !== exact(at)) time.title = exact(at);
  }
}

tick();
setInterval(() => document.hidden || tick(), 1000);
document.addEventListener("visibilitychange", () => document.hidden || tick());
document.addEventListener("htmx:afterSwap", () => tick());
