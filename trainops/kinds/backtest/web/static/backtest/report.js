// The curves of a backtest's report: equity, drawdown, and the price with its trades.
import { colour, translucent } from "/static/js/colours.js";

const HEIGHT = { equity: 280, drawdown: 150, price: 280 };
const INK = { equity: "--tblr-blue", drawdown: "--tblr-red", price: "--tblr-secondary-color" };
const MARK = 5; // half a triangle, in pixels
let drawn = [];

export function draw(part) {
  for (const { plot } of drawn) plot.destroy();
  drawn = [];
  const data = part.querySelector("#report-charts");
  document.getElementById("charts").hidden = Boolean(data); // the report has the same, and more
  if (!data) return;
  const columns = JSON.parse(data.textContent);
  for (const body of part.querySelectorAll("[data-report-chart]")) {
    const name = body.dataset.reportChart;
    const plot = new uPlot(options(name, body, columns.marks), [columns.times, columns[name === "price" ? "close" : name]], body);
    const canvas = body.querySelector("canvas");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", describe(name, columns));
    drawn.push({ name, body, plot });
  }
}

document.addEventListener("theme-changed", () => {
  const part = document.querySelector("[data-part=report]");
  if (part) draw(part);
});
addEventListener("resize", () => {
  for (const { name, body, plot } of drawn) plot.setSize({ width: body.clientWidth, height: HEIGHT[name] });
});

function options(name, body, marks) {
  const ink = colour(INK[name]), soft = colour("--tblr-secondary-color"), line = colour("--tblr-border-color");
  const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px 'Inter Variable', sans-serif" };
  const say = name === "drawdown" ? percent : number;
  return {
    width: body.clientWidth,
    height: HEIGHT[name],
    padding: [12, 12, 0, 0],
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"), // as the tables' times of bars
    axes: [axis, { ...axis, size: 72, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : say(tick))) }],
    series: [
      { label: "time (UTC)", value: (_, x) => (x == null ? "–" : new Date(x * 1000).toISOString().slice(0, 10)) },
      { label: name, stroke: ink, width: name === "price" ? 1.25 : 2, fill: translucent(ink, name === "price" ? 0 : 0.12), points: { show: false }, value: (_, y) => (y == null ? "–" : say(y)) },
    ],
    cursor: { y: false, points: { size: 7 } },
    hooks: name === "price" ? { draw: [(plot) => drawMarks(plot, marks)] } : {},
  };
}

function drawMarks(plot, marks) {
  const { ctx } = plot, size = MARK * devicePixelRatio;
  const inks = { entry: colour("--tblr-green"), exit: colour("--tblr-red") };
  ctx.save();
  for (const { time, price, what } of marks) {
    const x = plot.valToPos(time, "x", true), y = plot.valToPos(price, "y", true);
    const up = what === "entry" ? 1 : -1;
    ctx.fillStyle = inks[what];
    ctx.beginPath();
    ctx.moveTo(x, y - up * size);
    ctx.lineTo(x - size, y + up * size);
    ctx.lineTo(x + size, y + up * size);
    ctx.fill();
  }
  ctx.restore();
}

function describe(name, { equity, drawdown, close, marks }) {
  if (name === "equity") return `Equity, from ${number(equity[0])} to ${number(equity.at(-1))}`;
  if (name === "drawdown") return `Drawdown, at most ${percent(-Math.min(...drawdown))}`;
  return `Price, from ${number(close[0])} to ${number(close.at(-1))}, with ${marks.length} entries and exits`;
}

const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 6 });
const percent = (value) => `${(100 * value).toFixed(1)} %`;
