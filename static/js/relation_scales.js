// Pure: the values of a dimension as places from 0 to 1, and the ticks of its axis.
import { number } from "./numbers.js";

const MANY = 100; // times the lowest value: from there on, the scale is logarithmic
const FEW = 6; // distinct numbers that are all ticks
const MAX_TICKS = 12; // of texts

// {isNumeric, isLog, placeOf(value), ticks: [{place, text}]}; the place of no value is null.
export function scaleOf({ values }) {
  const known = values.filter((value) => value !== null);
  return known.every((value) => typeof value === "number") ? numeric(known) : textual(known);
}

function numeric(known) {
  const distinct = [...new Set(known)].sort((a, b) => a - b);
  const low = distinct[0] ?? 0, high = distinct.at(-1) ?? 0;
  const isLog = low > 0 && high / low >= MANY;
  const [from, to] = isLog ? [Math.log10(low), Math.log10(high)] : [low, high];
  const placeOf = (value) => {
    if (value === null) return null;
    return from === to ? 0.5 : ((isLog ? Math.log10(value) : value) - from) / (to - from);
  };
  const shown = distinct.length <= FEW ? distinct : isLog ? decades(low, high) : even(low, high);
  return { isNumeric: true, isLog, low, high, placeOf, ticks: apart(shown.map((value) => ({ place: placeOf(value), text: number(value) }))) };
}

// The ends, and powers of ten between them.
function decades(low, high) {
  const powers = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
  return powers.length > 1 ? powers : [low, ...powers, high];
}

// About five multiples of 1, 2 or 5 times a power of ten.
export function even(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((each) => each * power >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n++) ticks.push(Number((n * step).toPrecision(12)));
  return ticks;
}

// Without ticks whose texts would touch.
function apart(ticks) {
  const found = [];
  for (const tick of ticks) if (!found.length || tick.place - found.at(-1).place > 0.05) found.push(tick);
  return found;
}

function textual(known) {
  const texts = [...new Set(known.map(String))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const places = new Map(texts.map((text, i) => [text, texts.length > 1 ? i / (texts.length - 1) : 0.5]));
  const every = Math.ceil(texts.length / MAX_TICKS);
  const ticks = texts.filter((_, i) => i % every === 0).map((text) => ({ place: places.get(text), text: cut(text) }));
  return { isNumeric: false, isLog: false, texts, placeOf: (value) => (value === null ? null : places.get(String(value))), ticks };
}

export const cut = (text, length = 18) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

export const textOf = (value) => (value === null ? "—" : typeof value === "number" ? number(value) : value);

export const titleOf = ({ name, what }) => (what === "field" ? name : `${name} (${what})`);

// From 0, the worst, to 1, the best; of a value without a direction from the lowest to the highest.
export function shareOf(dimension, scale, i) {
  const place = dimension ? scale.placeOf(dimension.values[i]) : null;
  return place === null ? null : dimension.mode === "min" ? 1 - place : place;
}
