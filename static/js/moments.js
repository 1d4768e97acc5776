// Times in the time zone of the reader. The same texts as apps/dashboard/formatting.py.

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local";

const FORMAT = new Intl.DateTimeFormat("en", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
  second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23", timeZoneName: "longOffset",
});

// A moment, in milliseconds since 1970, as {day, time, offset}: "2026-11-26", "14:07:44.123", "+01:00".
export function local(at) {
  const part = Object.fromEntries(FORMAT.formatToParts(at).map(({ type, value }) => [type, value]));
  return {
    day: `${part.year}-${part.month}-${part.day}`,
    time: `${part.hour}:${part.minute}:${part.second}.${part.fractionalSecond}`,
    offset: part.timeZoneName.slice("GMT".length),
  };
}

// To the second, in the time zone of the reader and in UTC.
export function exact(at) {
  const { day, time, offset } = local(at);
  const utc = `${new Date(at).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  return offset ? `${day} ${time.slice(0, 8)} ${offset} · ${utc}` : utc;
}

// The time of day; the date before it where that is not today's.
export function clockTime(at, now) {
  const { day, time } = local(at);
  return day === local(now).day ? time.slice(0, 8) : `${day} ${time.slice(0, 8)}`;
}
