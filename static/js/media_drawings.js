// What is shown of the items of one step, by their type. Each function returns one element.
import { getJSON } from "./ask.js";
import { number } from "./numbers.js";
import { label, line, svg } from "./svg.js";

const PIXELATED = 160; // pixels: smaller pictures are enlarged without smoothing
const WIDTH = 560, HEIGHT = 220, LEFT = 52, RIGHT = 12, TOP = 10, BOTTOM = 26;
const MAX_WRITTEN = 15; // classes of a matrix whose cells have their counts written in them
const CELL = 30, LABELS = 96;
const DARKEST = 70; // per cent of the colour: counts are to be read on it

const element = (tag, name = "", text = "") => Object.assign(document.createElement(tag), { className: name, textContent: text });
const only = async (items, { address }) => getJSON(`${address}/${items[0].id}`);
const titleOf = (items, { name, place }) => items[0].caption || `${name} at ${place}`;

async function images(items, { name, address }) {
  const grid = element("div", items.length > 1 ? "media-grid" : "media-single");
  for (const [i, { id, caption }] of items.entries()) {
    const figure = element("figure"), picture = element("img");
    picture.alt = caption || (items.length > 1 ? `${name}, ${i + 1} of ${items.length}` : name);
    picture.addEventListener("load", () => picture.classList.toggle("is-pixelated", picture.naturalWidth < PIXELATED));
    picture.src = `${address}/${id}`;
    figure.append(picture);
    if (caption) figure.append(element("figcaption", "", caption));
    grid.append(figure);
  }
  return grid;
}

async function audio(items, { name, address }) {
  const list = element("div", "media-clips");
  for (const [i, { id, caption }] of items.entries()) {
    const figure = element("figure"), player = element("audio");
    player.controls = true;
    player.preload = "metadata";
    player.src = `${address}/${id}`;
    player.setAttribute("aria-label", caption || `${name}, ${i + 1} of ${items.length}`);
    figure.append(player);
    if (caption) figure.append(element("figcaption", "", caption));
    list.append(figure);
  }
  return list;
}

async function histogram(items, where) {
  const { edges, counts, num_not_finite: odd } = await only(items, where);
  const low = edges[0], high = edges[edges.length - 1], most = Math.max(1, ...counts);
  const x = (value) => LEFT + ((value - low) / (high - low)) * (WIDTH - LEFT - RIGHT);
  const y = (count) => HEIGHT - BOTTOM - (count / most) * (HEIGHT - TOP - BOTTOM);
  const picture = drawing(WIDTH, HEIGHT, `Histogram: ${titleOf(items, where)}`);
  for (const count of new Set([0, most])) {
    picture.append(line("media-tick", LEFT, y(count), WIDTH - RIGHT, y(count)), label(number(count), LEFT - 6, y(count) + 4, "end"));
  }
  counts.forEach((count, i) => {
    const left = x(edges[i]), right = x(edges[i + 1]);
    const bar = svg("rect", { x: left, y: y(count), width: Math.max(0.5, right - left - 0.5), height: y(0) - y(count), class: "media-bar" });
    bar.append(svg("title", {}, `${number(edges[i])} to ${number(edges[i + 1])}: ${number(count)}`));
    picture.append(bar);
  });
  for (const [value, anchor] of [[low, "start"], [(low + high) / 2, "middle"], [high, "end"]]) {
    picture.append(label(number(value), x(value), HEIGHT - 8, anchor));
  }
  const rows = counts.map((count, i) => [edges[i], edges[i + 1], count]);
  const notes = odd ? [`Not finite, not shown: ${number(odd)}`] : [];
  return withTable(items, picture, ["from", "to", "count"], rows, notes);
}

async function confusionMatrix(items, where) {
  const { labels, counts } = await only(items, where);
  const size = labels.length, cell = size <= MAX_WRITTEN ? CELL : Math.max(4, (MAX_WRITTEN * CELL) / size);
  const side = size * cell, isNamed = cell >= 10;
  const picture = drawing(LABELS + side + 8, LABELS + side + 8, `Confusion matrix: ${titleOf(items, where)}`);
  picture.append(label("predicted", LABELS + side / 2, 12, "middle", "media-axis"));
  const truth = label("true", -(LABELS + side / 2), 12, "middle", "media-axis");
  truth.setAttribute("transform", "rotate(-90)");
  picture.append(truth);
  counts.forEach((row, i) => {
    const total = row.reduce((sum, each) => sum + each, 0);
    row.forEach((count, j) => {
      const share = total ? count / total : 0, x = LABELS + j * cell, y = LABELS + i * cell;
      const box = svg("rect", { x, y, width: cell - 1, height: cell - 1, class: "media-cell" });
      box.style.setProperty("--share", `${Math.round(DARKEST * share)}%`);
      box.append(svg("title", {}, `true ${labels[i]}, predicted ${labels[j]}: ${number(count)} (${Math.round(100 * share)} % of the row)`));
      picture.append(box);
      if (size <= MAX_WRITTEN) picture.append(label(short(count), x + cell / 2, y + cell / 2 + 4, "middle", "media-count"));
    });
    if (!isNamed) return;
    picture.append(label(cut(labels[i]), LABELS - 6, LABELS + (i + 0.5) * cell + 4, "end"));
    const above = label(cut(labels[i]), 0, 0, "start");
    above.setAttribute("transform", `translate(${LABELS + (i + 0.5) * cell + 4} ${LABELS - 6}) rotate(-90)`);
    picture.append(above);
  });
  return withTable(items, picture, ["true \\ predicted", ...labels], counts.map((row, i) => [labels[i], ...row]));
}

async function table(items, where) {
  const { columns, rows } = await only(items, where);
  const box = element("div");
  if (items[0].caption) box.append(element("p", "media-caption", items[0].caption));
  box.append(tableOf(columns, rows, titleOf(items, where)));
  return box;
}

const cut = (text) => (text.length > 12 ? `${text.slice(0, 11)}…` : text);
const short = (count) => (count < 10_000 ? String(count) : new Intl.NumberFormat("en", { notation: "compact" }).format(count));

function drawing(width, height, title) {
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "media-drawing", role: "img", "aria-label": title });
}

function withTable(items, picture, columns, rows, notes = []) {
  const box = element("div"), details = element("details"), { caption } = items[0];
  if (caption) box.append(element("p", "media-caption", caption));
  box.append(picture, ...notes.map((note) => element("p", "text-secondary", note)));
  details.append(element("summary", "", "As a table"));
  details.addEventListener("toggle", () => {
    if (details.open && !details.querySelector("table")) details.append(tableOf(columns, rows, picture.getAttribute("aria-label")));
  });
  box.append(details);
  return box;
}

function tableOf(columns, rows, title) {
  const scroll = element("div", "table-scroll media-table"), shown = element("table", "table table-sm"), head = element("tr");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `Table: ${title}`);
  for (const name of columns) head.append(Object.assign(element("th", "", name), { scope: "col" }));
  const body = element("tbody");
  for (const row of rows) {
    const line = element("tr");
    for (const value of row) line.append(cellOf(value));
    body.append(line);
  }
  const top = element("thead");
  top.append(head);
  shown.append(top, body);
  scroll.append(shown);
  return scroll;
}

function cellOf(value) {
  if (typeof value !== "number") return element("td", "", value === null ? "–" : String(value));
  return Object.assign(element("td", "num", number(value)), { title: String(value) });
}

export const drawings = { image: images, audio, histogram, confusion_matrix: confusionMatrix, table };
