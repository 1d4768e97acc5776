// Numbers as short text.
import { duration } from "./clock.js";

export function number(value) {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  const power = value >= 1 ? Math.min(BYTES.length - 1, Math.floor(Math.log2(value) / 10)) : 0;
  return `${number(value / 1024 ** power)} ${BYTES[power]}`;
}

export const percent = (value) => `${number(value)}%`;
export const share = (value) => percent(Number((100 * value).toPrecision(4)));
export const elapsed = (seconds) => (seconds < 60 ? `${number(seconds)} s` : duration(seconds));
