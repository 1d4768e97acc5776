// The x axis of charts: a step, a count that the operation logs, or a time.
import { local, zone } from "./moments.js";
import { elapsed, number } from "./numbers.js";

// Metrics that count parts of the work, with the name of one part; they are axes.
export const COUNTS = { epoch: "epoch", round: "round", episodes: "episode" };
export const AXES = ["step", ...Object.keys(COUNTS), "elapsed", "time"];
export const isTime = (x) => x === "elapsed" || x === "time";

const SECONDS = [0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30];
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440].map((each) => 60 * each);
const DAYS = [2, 5, 10, 20, 50, 100].map((each) => 86_400 * each);

export function axisOptions(x) {
  if (x === "elapsed") return { space: 80, incrs: [...SECONDS, ...MINUTES, ...DAYS], values: (_, ticks) => ticks.map(elapsed) };
  if (x === "time") return { space: 70, values: (_, ticks, axis, space, width) => times(ticks, width) };
  return { values: (_, ticks) => ticks.map(number) };
}

// The ends of an axis around a single place, for which uPlot would take years.
export function endsAround(x, place) {
  const room = x === "time" ? 30 : 1;
  return [place - room, place + room];
}

// Times of a day in the time zone of the reader; the date where it changes.
function times(ticks, width) {
  let date = "";
  return ticks.map((tick) => {
    const { day, time } = local(1000 * tick);
    const text = width < 1 ? time : width < 60 ? time.slice(0, 8) : time.slice(0, 5);
    const isNew = day !== date;
    date = day;
    return isNew ? `${text}\n${day}` : text;
  });
}

// The name of the axis, and a place on it as text. `unit`: what one step is called.
export const axisName = (x, unit) => COUNTS[x] ?? { elapsed: "elapsed", time: `time (${zone})` }[x] ?? unit;

export function placeText(x, value) {
  if (value == null) return "–";
  if (x === "elapsed") return elapsed(value);
  if (x !== "time") return number(value);
  const { day, time } = local(1000 * value);
  return `${day} ${time.slice(0, 8)}`;
}
