// Numbers as short text. The same texts as trainops/quantities.py and apps/dashboard/formatting.py.
import { duration } from "./clock.js";

const MANY = 1e15; // from here on an integer is no longer exact

// Four significant digits; from 1,000 on, whole and with separators.
export function number(value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return String(value);
  if (size >= MANY) return significant(value, 4);
  if (Number.isInteger(value) || size >= 999.95) return grouped(value, 0);
  return significant(value, 4);
}

const grouped = (value, digits) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

// As "%.4g": no zeros at the end, exponents of two digits below 0.0001.
function significant(value, digits) {
  const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
  if (exponent >= -4 && exponent < digits) return String(Number(value.toPrecision(digits)));
  const sign = exponent[0], power = exponent.slice(1).padStart(2, "0");
  return `${Number(mantissa)}e${sign}${power}`;
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

// Powers of 1000, three digits.
export function bytes(value) {
  let power = 0;
  for (; value >= 999.5 && power < UNITS.length - 1; power++) value /= 1000;
  return `${significant(value, 3)} ${UNITS[power]}`;
}

export const percent = (value) => `${number(value)} %`;

// A fraction as percent, with three digits.
export function share(value) {
  const size = Math.abs(100 * value);
  return `${grouped(100 * value, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2)} %`;
}

export const elapsed = (seconds) => (seconds < 60 ? `${number(seconds)} s` : duration(seconds));
