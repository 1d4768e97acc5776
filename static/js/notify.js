// Browser notifications while a page is open, and the state of an operation in the tab.

const KEY = "trainops-notifications";
const ENDED = ["COMPLETED", "FAILED", "CANCELLED"];
const COLOURS = { RUNNING: "#066fd1", COMPLETED: "#2fb344", FAILED: "#d63939", CANCELLED: "#f76707" };

export const phaseOf = (state) => (ENDED.includes(state) ? "ended" : state === "RUNNING" ? "running" : "waiting");

export const isSupported = () => "Notification" in window && window.isSecureContext;

export const isOn = () =>
  isSupported() && Notification.permission === "granted" && localStorage.getItem(KEY) === "on";

export function set(on) {
  if (on) localStorage.setItem(KEY, "on");
  else localStorage.removeItem(KEY);
}

// Say that an operation that was active has ended. The tag makes several tabs show it once.
export function notifyOfEnd(name, id, before, after) {
  if (!isOn() || before === after || ENDED.includes(before) || !ENDED.includes(after)) return;
  const shown = new Notification(`${after}: ${name}`, { tag: `${id}-${after}`, body: id });
  shown.addEventListener("click", () => window.focus());
}

const AROUND = 2 * Math.PI * 11; // of the ring in the icon

// Show state and percent in the title of the tab and in its icon: the colour is that of the state, a
// ring the percent.
export function showInTab(title, state, percent) {
  const mark = state === "RUNNING" ? `${Math.floor(percent)} %` : state.toLowerCase();
  document.title = `${mark} · ${title}`;
  const icon = document.querySelector("link[rel=icon]");
  const colour = COLOURS[state] ?? "#929dab";
  const ring = (rest) => `<circle cx="16" cy="16" r="11" fill="none" stroke="${colour}" stroke-width="8" ${rest}/>`;
  const done = `stroke-dasharray="${(AROUND * percent) / 100} ${AROUND}" transform="rotate(-90 16 16)"`;
  const disc = `<circle cx="16" cy="16" r="14" fill="${colour}"/>`;
  const drawn = state === "RUNNING" ? ring('stroke-opacity="0.3"') + ring(done) : disc;
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${drawn}</svg>`;
  icon.href = `data:image/svg+xml,${encodeURIComponent(svg)}`;
}
