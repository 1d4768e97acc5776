// The tab Media: a panel for each name, with a slider over its steps.
import { getJSON } from "./ask.js";
import { drawings } from "./media_drawings.js";
import { number } from "./numbers.js";

export class Media {
  constructor(box, tab) {
    this.box = box;
    this.tab = tab;
    this.version = "";
    this.shown = ""; // version of what is shown
    this.panels = new Map(); // name → Panel
    tab.addEventListener("shown.bs.tab", () => this.look());
  }

  // `version` is another one whenever there is something new; empty: there is nothing.
  announce(version) {
    this.version = version;
    if (version) {
      this.tab.parentElement.hidden = false;
      this.tab.classList.remove("disabled");
    }
    this.look();
  }

  // Nothing is asked for before the tab is looked at.
  async look() {
    const version = this.version;
    if (version === this.shown || this.isAsking || !this.tab.classList.contains("active")) return;
    this.isAsking = true;
    try {
      const { names } = await getJSON(this.box.dataset.media);
      this.show(names);
      this.shown = version;
    } finally {
      this.isAsking = false;
    }
    if (this.version !== version) this.look();
  }

  show(names) {
    const known = new Set(names.map(({ name }) => name));
    for (const [name, panel] of this.panels) if (!known.has(name)) this.forget(name, panel);
    names.forEach(({ name, steps }, i) => {
      if (!this.panels.has(name)) this.panels.set(name, new Panel(this.box, name));
      const panel = this.panels.get(name), next = this.box.children[i + 1]; // behind the template
      if (next !== panel.section) this.box.insertBefore(panel.section, next ?? null); // a move ends its focus
      panel.update(steps);
    });
  }

  forget(name, panel) {
    panel.section.remove();
    this.panels.delete(name);
  }
}

class Panel {
  constructor(box, name) {
    const fragment = box.querySelector("#media-panel").content.cloneNode(true);
    this.name = name;
    this.unit = box.dataset.unit;
    this.address = box.dataset.media;
    this.section = fragment.firstElementChild;
    this.slider = this.section.querySelector("input");
    this.place = this.section.querySelector("output");
    this.content = this.section.querySelector(".media-shown");
    this.buttons = [...this.section.querySelectorAll("[data-media-by]")];
    this.steps = [];
    this.key = "";
    this.section.setAttribute("aria-label", name);
    this.section.querySelector("h2").textContent = name;
    this.slider.setAttribute("aria-label", `Step of ${name}`);
    this.slider.addEventListener("input", () => this.draw());
    for (const button of this.buttons) {
      button.setAttribute("aria-label", `${button.getAttribute("aria-label")} ${this.unit} of ${name}`);
      button.addEventListener("click", () => this.move(Number(button.dataset.mediaBy)));
    }
  }

  // The newest step stays in view; an earlier one stays the same step.
  update(steps) {
    const chosen = this.steps[this.slider.value];
    const wasNewest = !chosen || Number(this.slider.value) === this.steps.length - 1;
    const at = wasNewest ? steps.length - 1 : steps.findLastIndex(({ step }) => step <= chosen.step);
    this.steps = steps;
    this.slider.max = steps.length - 1;
    this.slider.value = Math.max(0, at);
    this.slider.disabled = steps.length < 2;
    this.draw();
  }

  move(by) {
    this.slider.value = Number(this.slider.value) + by;
    this.draw();
  }

  async draw() {
    const at = Number(this.slider.value), shown = this.steps[at];
    const place = `${this.unit} ${number(shown.step)}, attempt ${shown.attempt}`;
    this.place.textContent = `${place} (${at + 1} of ${this.steps.length})`;
    this.slider.setAttribute("aria-valuetext", place);
    this.buttons[0].disabled = at === 0;
    this.buttons[1].disabled = at === this.steps.length - 1;
    const key = shown.items.map(({ id }) => id).join();
    if (key === this.key) return;
    this.key = key;
    const drawn = await drawings[shown.type](shown.items, { name: this.name, place, address: this.address }).catch(() => null);
    if (this.key !== key) return; // the slider was moved meanwhile
    if (!drawn) {
      this.key = "";
      return this.content.replaceChildren(problem());
    }
    this.content.style.minHeight = `${this.content.offsetHeight}px`; // nothing jumps while pictures load
    this.content.replaceChildren(drawn);
    await Promise.allSettled([...drawn.querySelectorAll("img")].map((each) => each.decode()));
    if (this.key === key) this.content.style.minHeight = "";
  }
}

function problem() {
  const note = document.createElement("p");
  note.className = "text-secondary";
  note.textContent = "This could not be loaded. Move the slider to try again.";
  return note;
}
