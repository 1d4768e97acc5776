// How one looks at the curves is in the address: x axis, zoomed window, smoothing, charts with a
// logarithmic scale.
import { AXES } from "./axis.js";

// `xName`: the parameter of the x axis.
export function readView(xName) {
  const query = new URLSearchParams(location.search);
  const x = AXES.includes(query.get(xName)) ? query.get(xName) : "step";
  const smooth = Math.min(0.98, Math.max(0, Number(query.get("smooth")) || 0));
  const log = new Set((query.get("log") ?? "").split(",").filter(Boolean));
  return { x, smooth, log, zoom: windowOf(query.get("zoom") ?? "") };
}

// "10:20" as [10, 20]; null if that is no window.
function windowOf(text) {
  const ends = text.split(":").map(Number);
  return text && ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends : null;
}

// The other parameters stay as they are.
export function writeView({ x, smooth, log, zoom }, xName) {
  const query = new URLSearchParams(location.search);
  const values = { [xName]: x === "step" ? "" : x, smooth: smooth || "", log: [...log].join(","), zoom: zoom?.join(":") };
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
  history.replaceState(history.state, "", location.pathname + (text && `?${text}`) + location.hash);
}
