// One frame of a recorded episode on a canvas: a grid with its affordances, a cart with its pole,
// or whatever was observed as bars.
import { colour, translucent } from "/static/js/colours.js";

const PALETTE = ["blue", "orange", "green", "purple", "red", "cyan", "yellow", "pink", "teal", "indigo"];
const MAX_SIDE = 360, METER = 16, GAP = 8;

export function drawFrame(canvas, recording, at) {
  const { world, frames } = recording;
  const meters = frames.meters?.[at] ?? [];
  const width = Math.max(160, Math.min(canvas.parentElement.clientWidth, 520));
  const stage = world.size ? gridHeight(world.size, width) : 180;
  const pen = sized(canvas, width, stage + meters.length * METER + (meters.length ? GAP : 0));
  if (world.size) drawGrid(pen, recording, at, width, stage);
  else if (/^CartPole/.test(world.id) && frames.observation[at].length === 4) drawCart(pen, frames.observation[at], width, stage);
  else drawBars(pen, frames.observation, at, width, stage);
  meters.forEach((level, i) => drawMeter(pen, world.meters[i], level, stage + GAP + i * METER, width));
}

function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px 'Inter Variable', sans-serif";
  pen.textBaseline = "middle";
  return pen;
}

// A world of three dimensions is drawn floor by floor, side by side.
function layoutOf(size, width) {
  const [columns, rows, floors] = [...size, 1, 1, 1].slice(0, 3);
  const gaps = (floors - 1) * GAP + 2;
  const cell = Math.max(3, Math.min((width - gaps) / (columns * floors), MAX_SIDE / rows, 56));
  return { columns, rows, floors, cell };
}

const gridHeight = (size, width) => Math.ceil(layoutOf(size, width).rows * layoutOf(size, width).cell) + 1;

function drawGrid(pen, { world, frames, layout }, at, width) {
  const grid = layoutOf(world.size, width);
  const line = colour("--tblr-border-color");
  pen.strokeStyle = line;
  for (let floor = 0; floor < grid.floors; floor++) {
    for (let x = 0; x < grid.columns; x++) {
      for (let y = 0; y < grid.rows; y++) {
        const [left, top] = corner(grid, [x, y, floor]);
        pen.strokeRect(left + 0.5, top + 0.5, grid.cell, grid.cell);
      }
    }
  }
  (layout ?? []).forEach((place, i) => {
    const ink = colour(`--tblr-${PALETTE[i % PALETTE.length]}`);
    const [left, top] = corner(grid, place);
    pen.fillStyle = translucent(ink, frames.used?.[at] === i ? 0.75 : 0.35);
    pen.fillRect(left + 1, top + 1, grid.cell - 1, grid.cell - 1);
    pen.fillStyle = colour("--tblr-body-color");
    if (grid.cell >= 14) pen.fillText(short(world.affordances[i], grid.cell), left + 3, top + 9);
  });
  drawTrail(pen, grid, frames.position.slice(Math.max(0, at - 12), at + 1));
}

function drawTrail(pen, grid, places) {
  const ink = colour("--tblr-primary");
  places.forEach((place, i) => {
    const [left, top] = corner(grid, place), isHere = i === places.length - 1;
    pen.fillStyle = isHere ? ink : translucent(ink, 0.05 + 0.25 * (i / places.length));
    pen.beginPath();
    pen.arc(left + grid.cell / 2 + 0.5, top + grid.cell / 2 + 0.5, grid.cell * (isHere ? 0.3 : 0.14), 0, 2 * Math.PI);
    pen.fill();
  });
}

// Up is up: the first cell of the second axis is at the bottom.
function corner(grid, [x = 0, y = 0, floor = 0]) {
  return [floor * (grid.columns * grid.cell + GAP) + x * grid.cell, (grid.rows - 1 - y) * grid.cell];
}

function drawMeter(pen, name, level, top, width) {
  pen.fillStyle = colour("--tblr-secondary-color");
  pen.fillText(name, 0, top + METER / 2);
  const left = 90, room = Math.max(20, width - left);
  pen.fillStyle = translucent(colour("--tblr-secondary-color"), 0.15);
  pen.fillRect(left, top + 3, room, METER - 6);
  pen.fillStyle = colour(level < 0.2 ? "--tblr-red" : "--tblr-green");
  pen.fillRect(left, top + 3, room * level, METER - 6);
}

function drawCart(pen, [position, , angle], width, height) {
  const ink = colour("--tblr-primary"), soft = colour("--tblr-secondary-color");
  const x = width / 2 + (position / 2.4) * (width / 2 - 30), ground = height - 30;
  pen.strokeStyle = soft;
  pen.beginPath();
  pen.moveTo(0, ground + 10);
  pen.lineTo(width, ground + 10);
  pen.stroke();
  pen.fillStyle = soft;
  pen.fillRect(x - 22, ground - 8, 44, 18);
  pen.strokeStyle = ink;
  pen.lineWidth = 6;
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo(x, ground - 8);
  pen.lineTo(x + 100 * Math.sin(angle), ground - 8 - 100 * Math.cos(angle));
  pen.stroke();
}

function drawBars(pen, observations, at, width, height) {
  const values = observations[at], middle = height / 2;
  const most = Math.max(1e-9, ...observations.flat().map(Math.abs));
  const step = width / values.length;
  pen.fillStyle = colour("--tblr-primary");
  values.forEach((value, i) => pen.fillRect(i * step + 1, middle, Math.max(1, step - 2), -(value / most) * (middle - 4)));
  pen.fillStyle = colour("--tblr-border-color");
  pen.fillRect(0, middle, width, 1);
}

const short = (name, cell) => name.slice(0, Math.max(1, Math.floor(cell / 8)));
