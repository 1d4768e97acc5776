// The values at the cursor of a chart, next to the cursor.
const GAP = 12; // pixels between cursor and tooltip

export function showTooltip(chart, readings) {
  const tooltip = chart.card.querySelector(".chart-tooltip");
  tooltip.hidden = !readings;
  if (!readings) return;
  tooltip.replaceChildren(line("chart-tooltip-place", readings.place), ...readings.values.map(row));
  const { over, cursor } = chart.plot;
  const left = chart.body.offsetLeft + over.parentElement.offsetLeft + over.offsetLeft + cursor.left;
  const isLeft = cursor.left > over.clientWidth / 2, width = tooltip.offsetWidth;
  const wanted = isLeft ? left - GAP - width : left + GAP;
  tooltip.style.left = `${Math.max(0, Math.min(wanted, chart.card.clientWidth - width))}px`;
  tooltip.style.top = `${chart.body.offsetTop + over.offsetTop}px`;
}

function row({ name, ink, text }) {
  const shown = line("", `${name} `);
  const swatch = document.createElement("span"), value = document.createElement("b");
  swatch.className = "swatch";
  swatch.style.background = ink;
  value.textContent = text;
  shown.prepend(swatch);
  shown.append(value);
  return shown;
}

function line(name, text) {
  const shown = document.createElement("div");
  shown.className = name;
  shown.textContent = text;
  return shown;
}
