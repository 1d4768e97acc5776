// A chart by the keyboard: the arrows move the cursor, + and - zoom, 0 or Escape show all.
const FAR = 10; // points, with Shift

export function steer(chart, event) {
  if (event.target !== chart.body || !chart.plot || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = KEYS[event.key];
  if (!act || (event.key === "Escape" && !chart.charts.view.zoom)) return;
  event.preventDefault();
  act(chart, event.shiftKey ? FAR : 1);
}

const KEYS = {
  ArrowLeft: (chart, by) => move(chart, -by),
  ArrowRight: (chart, by) => move(chart, by),
  Home: (chart) => move(chart, -Infinity),
  End: (chart) => move(chart, Infinity),
  "+": (chart) => zoom(chart, 0.5),
  "-": (chart) => zoom(chart, 2),
  0: (chart) => chart.charts.zoomTo(null),
  Escape: (chart) => chart.charts.zoomTo(null),
};

// To a point of the window; without a cursor, from its end.
function move(chart, by) {
  const { plot } = chart;
  const said = chart.card.querySelector(".chart-said");
  if (chart.emptiness) {
    said.textContent = chart.emptiness;
    return;
  }
  const [xs] = plot.data, { min, max } = plot.scales.x;
  const first = xs.findIndex((x) => x >= min), last = xs.findLastIndex((x) => x <= max);
  if (first < 0 || last < first) return;
  const from = plot.cursor.left >= 0 && plot.cursor.idx != null ? plot.cursor.idx : last + (by < 0 ? 1 : 0);
  const to = Math.min(last, Math.max(first, from + by));
  plot.setCursor({ left: plot.valToPos(xs[to], "x"), top: plot.over.clientHeight / 2 });
  const { place, values } = chart.readings();
  said.textContent = [place, ...values.map(({ name, text }) => `${name} ${text}`)].join(", ");
}

// Around the cursor, or the middle of the window; by 0.5 into half of it.
function zoom(chart, by) {
  const { plot } = chart, { min, max } = plot.scales.x;
  const middle = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") : (min + max) / 2;
  const low = middle - (middle - min) * by, high = middle + (max - middle) * by;
  const [xs] = plot.data;
  chart.charts.zoomTo(low <= xs[0] && high >= xs.at(-1) ? null : [low, high]);
}
