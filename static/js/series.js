// Pure functions of curves: which points an attempt took back, smoothing, and the x axis.

// A point is {attempt, step, value, time}. An attempt that starts from step s takes back what older
// attempts measured after s. `starts` is [[attempt, step], ...].
export function isRetired(point, starts) {
  return starts.some(([attempt, step]) => attempt > point.attempt && point.step > step);
}

// One metric's points as {live: points, retired: [points of one attempt, ...]}, each by step.
export function divide(points, starts) {
  const live = [], retired = new Map();
  for (const point of points) {
    if (!isRetired(point, starts)) live.push(point);
    else if (retired.has(point.attempt)) retired.get(point.attempt).push(point);
    else retired.set(point.attempt, [point]);
  }
  const byStep = (a, b) => a.step - b.step;
  return { live: live.sort(byStep), retired: [...retired.values()].map((each) => each.sort(byStep)) };
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

// The epochs finished at a step, between the points of the metric "epoch".
export function epochAt(step, epochs) {
  if (!epochs.length) return null;
  let low = 0, high = epochs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (epochs[middle].step < step) low = middle + 1;
    else high = middle;
  }
  const [before, after] = [epochs[low - 1] ?? { step: 0, value: 0 }, epochs[low]];
  if (!after) {
    const first = epochs[0];
    return before.value + ((step - before.step) * first.value) / first.step;
  }
  const part = after.step === before.step ? 0 : (step - before.step) / (after.step - before.step);
  return before.value + part * (after.value - before.value);
}

// "train_loss" and "val_loss" share a chart: "loss". So do "return", "return_mean" and
// "evaluation_return".
export const chartOf = (name) => name.replace(/^(train|val|test|evaluation)_/, "").replace(/^return_mean$/, "return");

const FIRST = ["return", "loss", "accuracy", "learning_rate"];
export function order(a, b) {
  const place = (name) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return place(a) - place(b) || a.localeCompare(b);
}
