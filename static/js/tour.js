// The tour: a dialog that shows one step after another, beside the part of the page that it is about.
import { getText } from "./ask.js";

const GAP = 12; // pixels between the text and what it is about
const EDGE = 8; // pixels to the edge of the window, at least

export async function start() {
  if (document.querySelector("dialog[open]")) return;
  const html = await getText("/help/tour").catch(() => "");
  if (html && !document.querySelector("dialog[open]")) new Tour(html);
}

class Tour {
  constructor(html) {
    this.dialog = document.createElement("dialog");
    this.dialog.className = "tour";
    this.dialog.setAttribute("aria-label", "Tour");
    this.dialog.dataset.testid = "tour";
    this.dialog.innerHTML = '<div class="tour-spot"></div><div class="dialog"></div>';
    [this.spot, this.card] = this.dialog.children;
    this.card.innerHTML = html;
    this.steps = [...this.dialog.querySelectorAll("[data-tour-step]")];
    this.count = this.dialog.querySelector(".tour-count");
    this.back = this.dialog.querySelector("[data-tour-back]");
    this.next = this.dialog.querySelector("[data-tour-next]");
    this.skip = this.dialog.querySelector("[data-tour-skip]");
    document.body.append(this.dialog);
    this.listen();
    this.dialog.showModal();
    this.show(0);
    this.next.focus();
  }

  listen() {
    const place = () => this.place();
    this.back.addEventListener("click", () => this.show(this.at - 1));
    this.next.addEventListener("click", () => this.show(this.at + 1));
    this.skip.addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("keydown", ({ key }) => {
      if (key === "ArrowRight" && this.at < this.steps.length - 1) this.show(this.at + 1);
      if (key === "ArrowLeft") this.show(this.at - 1);
    });
    this.dialog.addEventListener("close", () => {
      removeEventListener("resize", place);
      removeEventListener("scroll", place);
      this.dialog.remove();
    });
    addEventListener("resize", place);
    addEventListener("scroll", place, { passive: true });
  }

  show(at) {
    if (at >= this.steps.length) return this.dialog.close();
    this.at = Math.max(0, at);
    this.steps.forEach((step, i) => (step.hidden = i !== this.at));
    if (!this.card.contains(document.activeElement)) this.next.focus();
    const isLast = this.at === this.steps.length - 1;
    this.count.textContent = `${this.at + 1} of ${this.steps.length}`;
    if (this.at === 0 && document.activeElement === this.back) this.next.focus(); // it is disabled now
    this.back.disabled = this.at === 0;
    this.next.textContent = isLast ? "Done" : "Next";
    this.skip.hidden = isLast;
    this.target = this.steps[this.at].dataset.tourStep.split("|")
      .map((selector) => document.querySelector(selector)).find((found) => found?.checkVisibility());
    this.target?.scrollIntoView({ block: "nearest" });
    this.place();
  }

  // Beside the target, below it, above it, or where it covers least of it; without one, in the middle.
  place() {
    const { card, spot, target } = this, { offsetWidth: width, offsetHeight: height } = card;
    const box = target?.getBoundingClientRect();
    spot.classList.toggle("tour-nowhere", !box);
    let left = (innerWidth - width) / 2, top = (innerHeight - height) / 2;
    if (box) {
      move(spot, { left: box.left - 4, top: box.top - 4, width: box.width + 8, height: box.height + 8 });
      if (box.right + GAP + width <= innerWidth) [left, top] = [box.right + GAP, box.top];
      else if (box.bottom + GAP + height <= innerHeight) [left, top] = [box.left, box.bottom + GAP];
      else if (box.top - GAP - height >= 0) [left, top] = [box.left, box.top - GAP - height];
      else top = innerHeight - height;
    }
    const inside = (value, most) => Math.max(EDGE, Math.min(value, most - EDGE));
    move(card, { left: inside(left, innerWidth - width), top: inside(top, innerHeight - height) });
  }
}

function move(element, sides) {
  for (const [name, value] of Object.entries(sides)) element.style[name] = `${value}px`;
}
