// A canvas knows no CSS variables: a probe element in the page resolves them to plain colours.

const probe = document.createElement("span");
probe.className = "probe";

export function colour(variable) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${variable})`;
  return getComputedStyle(probe).color;
}

export function translucent(ink, share) {
  probe.style.color = `color-mix(in srgb, ${ink} ${share * 100}%, transparent)`;
  return getComputedStyle(probe).color;
}

// The colour of a chart's n-th curve, from 0; the first of them are the classes swatch-0, swatch-1 …
const NUM_CURVE_COLOURS = 12;
export const curveColour = (n) => colour(`--curve-${n % NUM_CURVE_COLOURS}`);
