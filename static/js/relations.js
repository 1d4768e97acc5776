// Operations over their fields and values: parallel coordinates, a scatter plot and the importance
// of the fields, with one chosen operation and one value that judges. What is drawn is in the
// address.
import { getJSON } from "./ask.js";
import { Importance } from "./importance.js";
import { drawParallel } from "./parallel.js";
import { poll } from "./poll.js";
import { Ranges } from "./ranges.js";
import { scaleOf, shareOf, textOf, titleOf } from "./relation_scales.js";
import { fillTable } from "./relation_table.js";
import { drawScatter } from "./scatter.js";

const NEAR = 24; // pixels from the pointer to an operation
const MAX_AXES = 8; // at first
const NUM_TINTS = 12;
const EVERY = 10_000; // milliseconds between two readings of operations that run
const CHOICES = ["target", "across", "up", "tint"];

class Relations {
  constructor(section) {
    this.section = section;
    this.find = (selector) => section.querySelector(selector);
    this.view = Object.fromEntries(new URLSearchParams(location.search));
    this.importance = new Importance(section, this);
    this.plots = {};
    this.ranges = new Ranges(this);
    for (const name of CHOICES) {
      this.find(`[data-choose="${name}"]`).addEventListener("change", ({ target }) => this.choose(name, target.value));
    }
    for (const box of section.querySelectorAll("[data-plot]")) this.listen(box);
    this.find("[data-axes]").addEventListener("change", () => this.chooseAxes());
    startMenu(this.find(".chart-menu"));
    this.find(".relation-table").addEventListener("toggle", () => this.fill());
    new ResizeObserver(() => this.data && this.draw()).observe(section);
  }

  take(data) {
    const text = JSON.stringify(data);
    if (text === this.text) return;
    this.text = text;
    this.data = data;
    this.byKey = new Map(data.dimensions.map((each) => [each.key, each]));
    this.scales = new Map(data.dimensions.map((each) => [each.key, scaleOf(each)]));
    this.fields = data.dimensions.filter(({ what }) => what === "field");
    this.values = data.dimensions.filter(({ what }) => what !== "field");
    this.section.hidden = !this.values.length || data.operations.length < 2;
    if (this.section.hidden) return;
    this.offer();
    this.update();
  }

  // What is chosen, or else what is worth a look first.
  settle() {
    const { view, byKey } = this;
    const known = (name, other) => (byKey.has(view[name]) ? view[name] : other);
    view.target = known("target", this.data.target || this.values[0].key);
    view.across = known("across", this.fields[0]?.key ?? this.values.at(-1).key);
    view.up = known("up", view.target);
    view.tint = view.tint === "none" ? "none" : known("tint", this.fields[1]?.key ?? "none");
    const first = [...this.fields.slice(0, MAX_AXES - 1).map(({ key }) => key), view.target];
    const chosen = (view.axes ?? "").split(",").filter((key) => byKey.has(key));
    this.axes = chosen.length > 1 ? chosen : first.length > 1 ? first : this.values.slice(0, MAX_AXES).map(({ key }) => key);
  }

  offer() {
    this.settle();
    const all = this.data.dimensions.map((each) => [each.key, titleOf(each)]);
    const values = this.values.map((each) => [each.key, titleOf(each)]);
    fill(this.find('[data-choose="target"]'), values, this.view.target);
    fill(this.find('[data-choose="across"]'), all, this.view.across);
    fill(this.find('[data-choose="up"]'), all, this.view.up);
    fill(this.find('[data-choose="tint"]'), [["none", "none"], ...all], this.view.tint);
    this.find("[data-axes]").replaceChildren(this.find("[data-axes] legend"), ...all.map(([key, title]) => box(key, title, this.axes.includes(key))));
  }

  choose(name, value) {
    if (name === "target" && this.view.up === this.view.target) this.remember("up", value);
    this.remember(name, value);
    this.offer();
    this.update();
  }

  chooseAxes() {
    const chosen = [...this.find("[data-axes]").querySelectorAll("input:checked")].map(({ value }) => value);
    this.remember("axes", chosen.join(","));
    this.settle();
    this.draw();
  }

  remember(name, value) {
    this.view[name] = value;
    const query = new URLSearchParams(location.search);
    if (value) query.set(name, value);
    else query.delete(name);
    const text = query.toString().replaceAll("%2C", ",");
    history.replaceState(history.state, "", `${location.pathname}?${text}${location.hash}`);
  }

  update() {
    const target = this.byKey.get(this.view.target), scale = this.scales.get(this.view.target);
    this.shares = this.data.operations.map((_, i) => shareOf(target, scale, i));
    this.order = this.shares.map((share, i) => [share ?? -1, i]).sort((a, b) => b[0] - a[0]).map(([, i]) => i);
    this.draw();
    this.fill();
    this.importance.reset();
  }

  draw() {
    if (this.section.hidden) return;
    const { view, byKey, scales } = this, chosen = this.current;
    const axes = this.axes.map((key) => byKey.get(key));
    this.plots.parallel = drawParallel(this.find('[data-plot="parallel"]'), { dimensions: axes, scales: this.axes.map((key) => scales.get(key)), shares: this.shares, ranges: this.ranges.marked });
    this.plots.scatter = drawScatter(this.find('[data-plot="scatter"]'), {
      across: byKey.get(view.across), up: byKey.get(view.up), scaleAcross: scales.get(view.across), scaleUp: scales.get(view.up),
    });
    this.plots.parallel.lines.forEach((element, i) => shade(element, this.shares[i]));
    this.paint();
    for (const { lines } of Object.values(this.plots)) lines.forEach((each, i) => each?.classList.toggle("is-outside", !this.ranges.has(i)));
    this.ranges.button.hidden = !this.ranges.summary();
    legend(this.find("[data-scale]"), byKey.get(view.target), scales.get(view.target));
    this.current = undefined;
    this.point(chosen ?? null);
  }

  // The colours of the dots.
  paint() {
    const dimension = this.byKey.get(this.view.tint), scale = this.scales.get(this.view.tint);
    const isText = dimension && !scale.isNumeric;
    this.plots.scatter.lines.forEach((dot, i) => {
      if (!dot) return;
      const value = dimension?.values[i] ?? null;
      if (isText && value !== null) dot.classList.add(`tint-${scale.texts.indexOf(String(value)) % NUM_TINTS}`);
      else shade(dot, dimension ? (value === null ? null : scale.placeOf(value)) : 1);
    });
    const place = this.find("[data-tint-scale]");
    if (isText) tints(place, dimension, scale.texts);
    else legend(place, dimension, scale, false);
  }

  // Chooses an operation in both plots; null: none.
  point(i) {
    if (i === this.current) return;
    for (const { lines } of Object.values(this.plots)) {
      lines[this.current]?.classList.remove("is-current");
      lines[i]?.classList.add("is-current");
      if (lines[i]) lines[i].parentElement.append(lines[i]); // above the others
    }
    this.current = i;
    this.find("[data-readout]").replaceChildren(...(i === null ? [this.ranges.summary()] : this.reading(i)));
  }

  reading(i) {
    const link = document.createElement("a"), { operation_id, name } = this.data.operations[i];
    link.href = `/operations/${operation_id}/`;
    link.textContent = name;
    const keys = new Set([...this.axes, this.view.across, this.view.up, this.view.target]);
    const parts = [...keys].flatMap((key) => {
      const value = document.createElement("b");
      value.textContent = textOf(this.byKey.get(key).values[i]);
      return [` · ${titleOf(this.byKey.get(key))} `, value];
    });
    return [link, ...parts];
  }

  listen(box) {
    const name = box.dataset.plot;
    box.addEventListener("pointermove", (event) => {
      const frame = box.querySelector("svg")?.getBoundingClientRect();
      if (!frame || this.ranges.drag) return;
      const point = [event.clientX - frame.left, event.clientY - frame.top];
      const found = this.order.map((i) => [this.plots[name].distance(i, point), i]).reduce((a, b) => (b[0] < a[0] ? b : a));
      if (found[0] < NEAR) this.point(found[1]);
    });
    box.addEventListener("click", () => this.current != null && this.find("[data-readout] a")?.focus({ preventScroll: true }));
    box.addEventListener("keydown", (event) => this.steer(event));
  }

  steer(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.order) return;
    const order = this.order.filter((i) => this.ranges.has(i));
    const at = this.current == null ? -1 : order.indexOf(this.current), last = order.length - 1;
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (to !== undefined && order.length) this.point(order[Math.min(last, Math.max(0, to))]);
    else if (event.key === "Escape" && this.current != null) this.point(null);
    else if (event.key === "Escape" && this.ranges.summary()) this.ranges.clear();
    else if ("<>".includes(event.key) && this.current != null) this.ranges.cut(this.view.target, this.current, event.key === ">");
    else if (event.key === "Enter" && this.current != null) this.find("[data-readout] a").click();
    else return;
    event.preventDefault();
  }

  fill() {
    const table = this.find(".relation-table");
    if (table.open && this.data) fillTable(table.querySelector("table"), this.data, this.order);
  }
}

// A list that Escape and a click elsewhere close.
function startMenu(menu) {
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("click", ({ target }) => menu.contains(target) || (menu.open = false));
}

function shade(element, share) {
  if (share === null) element.classList.add("has-none");
  else element.style.setProperty("--share", `${Math.round(share * 100)}%`);
}

function fill(select, options, chosen) {
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value, false, value === chosen)));
}

function box(key, title, isChecked) {
  const label = document.createElement("label"), input = document.createElement("input");
  Object.assign(input, { type: "checkbox", className: "form-check-input", value: key, checked: isChecked });
  label.append(input, title);
  return label;
}

// Which values are pale and which are strong. `isJudged`: strong is better.
function legend(place, dimension, scale, isJudged = true) {
  if (!dimension || scale.low === scale.high) return place.replaceChildren();
  const ends = [scale.low, scale.high].map(textOf);
  if (isJudged && dimension.mode === "min") ends.reverse();
  const ramp = document.createElement("span");
  ramp.className = "relation-ramp";
  ramp.setAttribute("aria-hidden", "true");
  place.replaceChildren(`${titleOf(dimension)}: ${ends[0]} `, ramp, ` ${ends[1]}${isJudged && dimension.mode ? " (best)" : ""}`);
}

function tints(place, dimension, texts) {
  const named = texts.slice(0, NUM_TINTS).map((text, i) => {
    const one = document.createElement("span"), swatch = document.createElement("span");
    swatch.className = `swatch swatch-${i}`;
    swatch.setAttribute("aria-hidden", "true");
    one.append(swatch, text);
    return one;
  });
  const rest = texts.length > NUM_TINTS ? [`and ${texts.length - NUM_TINTS} more, in the same colours`] : [];
  place.replaceChildren(`${titleOf(dimension)}:`, ...named, ...rest);
}

const section = document.getElementById("relations");
export const relations = new Relations(section);
const embedded = document.getElementById("relations-data");
if (embedded) relations.take(JSON.parse(embedded.textContent));
else {
  const load = async () => {
    const { data } = await getJSON(section.dataset.source);
    relations.take(data);
    return data.is_active;
  };
  const asking = poll(load, EVERY);
  for (const name of ["acted", "resumed"]) document.addEventListener(name, asking.start); // more values to come
  asking.now();
}
