// The evaluation return over the steps, with a marker at each recorded episode that is shown.
import { number } from "/static/js/numbers.js";
import { label, svg } from "/static/js/svg.js";

const HEIGHT = 96, TOP = 18, BOTTOM = 20, SIDE = 12; // pixels
const METRIC = "evaluation_return";

// `recordings`: {step, value} of all recorded episodes. `shown`: the step by the name of a side.
export function drawReturns(box, curves, recordings, shown) {
  const live = curves?.divided(METRIC).live.filter(({ value }) => value !== null) ?? [];
  const points = live.map(({ step, value }) => ({ step, value }));
  const all = [...points, ...recordings];
  box.hidden = !all.length;
  if (!all.length) return;
  const width = box.clientWidth;
  const x = placer(all.map(({ step }) => step), SIDE, width - SIDE);
  const y = placer(all.map(({ value }) => value), HEIGHT - BOTTOM, TOP);
  const line = points.map(({ step, value }) => `${x(step)},${y(value)}`).join(" ");
  const dots = recordings.map(({ step, value }) => svg("circle", { class: "return-dot", cx: x(step), cy: y(value), r: 3 }));
  const marks = Object.entries(shown).flatMap(([side, step]) => {
    const found = recordings.find((each) => each.step === step);
    return found ? mark(side, x(step), y(found.value), width) : [];
  });
  const text = describe(recordings, shown);
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": text }, svg("polyline", { class: "return-line", points: line }), ...dots, ...marks);
  box.replaceChildren(picture);
}

function mark(side, x, y, width) {
  const anchor = x < 40 ? "start" : x > width - 40 ? "end" : "middle";
  return [
    svg("line", { class: "return-mark", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
    svg("circle", { class: `return-dot is-${side}`, cx: x, cy: y, r: 5 }),
    label(side, x, side === "left" ? TOP - 6 : HEIGHT - 6, anchor, "return-side"),
  ];
}

function describe(recordings, shown) {
  const parts = Object.entries(shown).map(([side, step]) => {
    const found = recordings.find((each) => each.step === step);
    return found ? `${side}: ${number(found.value)} at step ${number(step)}` : "";
  });
  return `Evaluation return by step. ${parts.filter(Boolean).join("; ")}`;
}

// A function from numbers to places between two ends.
function placer(numbers, from, to) {
  const low = Math.min(...numbers), high = Math.max(...numbers);
  return (each) => Math.round(high > low ? from + ((each - low) / (high - low)) * (to - from) : (from + to) / 2);
}
