// Pure functions of curves: which points an attempt took back, smoothing, and the x axis.

// A point is {attempt, step, value, time}. `standing` maps each attempt of the current branch to the
// last step whose points count, or null where all of them do; points of other attempts are retired.
export function isRetired(point, standing) {
  const last = standing[point.attempt];
  return last === undefined || (last !== null && point.step > last);
}

// One metric's points as {live: points, retired: [points of one attempt, ...]}, each by step.
export function divide(points, standing) {
  const live = [], retired = new Map();
  for (const point of points) {
    if (!isRetired(point, standing)) live.push(point);
    else if (retired.has(point.attempt)) retired.get(point.attempt).push(point);
    else retired.set(point.attempt, [point]);
  }
  const byStep = (a, b) => a.step - b.step;
  return { live: live.sort(byStep), retired: [...retired.values()].map((each) => each.sort(byStep)) };
}

// Columns x and y, x rising. `hasPauses`: between two attempts is a gap.
export function tableOf(points, values, placeOf, hasPauses) {
  const xs = [], ys = [];
  points.forEach((point, i) => {
    const x = placeOf(point), last = xs.at(-1);
    if (x === null || x <= last) return;
    if (hasPauses && i && points[i - 1].attempt !== point.attempt && last !== undefined) {
      xs.push((last + x) / 2);
      ys.push(null);
    }
    xs.push(x);
    ys.push(values[i]);
  });
  return [xs, ys];
}

// Exponential moving average with its start corrected; 0 returns the values as they are.
export function smooth(values, weight) {
  if (!weight) return values;
  let mean = 0, scale = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    scale = weight * scale + (1 - weight);
    return mean / scale;
  });
}

// The points of a metric and further ones of a part of it, each point once.
export function merge(points, more) {
  const key = ({ attempt, step }) => `${attempt}:${step}`;
  const known = new Set(more.map(key));
  return [...more, ...points.filter((point) => !known.has(key(point)))];
}

// What a metric that counts (epochs, rounds) has counted at a step, between its points.
export function countAt(step, counts) {
  if (!counts.length) return null;
  let low = 0, high = counts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (counts[middle].step < step) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [counts[low - 1] ?? { step: 0, value: 0 }, counts[low]];
  if (!after) {
    const first = counts[0];
    return before.value + ((step - before.step) * first.value) / first.step;
  }
  const part = after.step === before.step ? 0 : (step - before.step) / (after.step - before.step);
  return before.value + part * (after.value - before.value);
}

// "train_loss" and "val_loss" share a chart: "loss". So do "return", "return_mean" and
// "evaluation_return".
export const chartOf = (name) => name.replace(/^(train|val|test|evaluation)_/, "").replace(/^return_mean$/, "return");

// Measured points of the speed and the GPU, which have a group of charts of their own.
export const isSystem = (name) => name.startsWith("system/");

// Of one client of several that train together.
export const isOfClient = (name) => name.startsWith("clients/");

// Counts that only rise and say little as a curve.
const COUNTERS = new Set(["episodes", "environment_steps", "updates", "global_step", "steps", "samples_seen", "tokens_seen"]);
export const isCounter = (name) => COUNTERS.has(name);

const FIRST = ["return", "loss", "accuracy", "learning_rate"];
export function order(a, b) {
  const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return place(a) - place(b) || a.localeCompare(b);
}
