// Recorded evaluation episodes, two side by side, played on a canvas.
import { getJSON } from "/static/js/ask.js";
import { drawReturns } from "./return_curve.js";
import { drawFrame } from "./scene.js";

const kept = { at: 0, chosen: {}, speed: "8" }; // what a person chose; a new checkpoint changes none of it
let viewer = null, curves = null;

// `measured`: the Curves of the operation, to which points are added.
export function draw(part, measured) {
  curves = measured;
  viewer?.stop();
  const card = part?.querySelector("[data-replay]");
  viewer = card ? new Replay(card) : null;
}

document.addEventListener("theme-changed", () => viewer?.draw());
addEventListener("resize", () => {
  viewer?.draw();
  viewer?.drawReturns();
});
document.addEventListener("measured", () => viewer?.drawReturns());

class Replay {
  constructor(card) {
    this.address = card.dataset.replay;
    this.sides = [...card.querySelectorAll("[data-side]")].map((figure) => ({
      name: figure.dataset.side,
      select: figure.querySelector("select"),
      canvas: figure.querySelector("canvas"),
      caption: figure.querySelector("[data-caption]"),
      recording: null,
    }));
    this.returns = card.querySelector("[data-returns]");
    this.recordings = [...this.sides[0].select.options].map(({ value, dataset }) => ({ step: Number(value), value: Number(dataset.return) }));
    this.play = card.querySelector("[data-play]");
    this.slider = card.querySelector("[data-at]");
    this.speed = card.querySelector("[data-speed]");
    this.timer = null;
    this.listen(card);
    this.speed.value = kept.speed;
    for (const side of this.sides) {
      const wanted = kept.chosen[side.name];
      if ([...side.select.options].some((option) => option.value === wanted)) side.select.value = wanted;
      this.load(side);
    }
    this.drawReturns();
  }

  drawReturns() {
    const shown = Object.fromEntries(this.sides.map(({ name, select }) => [name, Number(select.value)]));
    drawReturns(this.returns, curves, this.recordings, shown);
  }

  listen(card) {
    for (const side of this.sides) {
      side.select.addEventListener("change", () => {
        kept.chosen[side.name] = side.select.value;
        this.load(side);
        this.drawReturns();
      });
    }
    this.play.addEventListener("click", () => (this.timer ? this.stop() : this.start()));
    card.querySelector("[data-back]").addEventListener("click", () => this.go(kept.at - 1));
    card.querySelector("[data-on]").addEventListener("click", () => this.go(kept.at + 1));
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.speed.addEventListener("change", () => {
      kept.speed = this.speed.value;
      if (this.timer) this.start();
    });
  }

  async load(side) {
    const step = side.select.value;
    const recording = await getJSON(`${this.address}${step}`).catch(() => null); // it may be gone
    if (side.select.value !== step) return; // another was chosen meanwhile
    side.recording = recording;
    this.slider.max = Math.max(0, ...this.sides.map((each) => last(each.recording)));
    this.go(Math.min(kept.at, Number(this.slider.max)));
  }

  start() {
    this.stop();
    if (kept.at >= Number(this.slider.max)) this.go(0);
    this.play.textContent = "Pause";
    this.timer = setInterval(() => {
      if (kept.at >= Number(this.slider.max)) this.stop();
      else this.go(kept.at + 1);
    }, 1000 / Number(this.speed.value));
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  go(at) {
    kept.at = Math.min(Math.max(at, 0), Number(this.slider.max));
    this.slider.value = kept.at;
    this.draw();
  }

  draw() {
    for (const { recording, canvas, caption } of this.sides) {
      if (!recording) {
        caption.textContent = "This recording is no longer there.";
        continue;
      }
      const at = Math.min(kept.at, last(recording));
      drawFrame(canvas, recording, at);
      const text = described(recording, at);
      caption.textContent = text;
      canvas.setAttribute("aria-label", text);
    }
  }
}

const last = (recording) => (recording ? recording.frames.reward.length - 1 : 0);

// What happened at this step, in words.
function described(recording, at) {
  const { frames, world, length } = recording;
  const gained = frames.reward.slice(0, at + 1).reduce((sum, each) => sum + each, 0);
  const action = frames.action[at] === null ? "begins" : world.actions[frames.action[at]];
  const used = frames.used?.[at] ?? null;
  const use = used === null ? "" : `, ${world.affordances[used]}`;
  const end = at < length ? "" : recording.terminated ? "; it is over" : "; time is up";
  return `step ${at} of ${length}: ${action}${use}; return ${gained.toFixed(2)}${end}`;
}
