// The shares of fields in a value, which the server computes when they are looked at.
import { getJSON } from "./ask.js";

const LEAST = 8; // completed operations

export class Importance {
  // `relations` has data {operations, is_active} and the key of the value in view.target.
  constructor(section, relations) {
    this.relations = relations;
    this.address = section.dataset.importance;
    this.isOfIds = !section.dataset.source; // a comparison names its operations
    this.card = section.querySelector(".relation-importance");
    this.note = this.card.querySelector("[data-importance-note]");
    this.rows = this.card.querySelector("[data-shares]");
    this.button = this.card.querySelector("[data-compute]");
    this.button.addEventListener("click", () => this.compute());
    this.seen = new IntersectionObserver((entries) => entries.some((each) => each.isIntersecting) && this.look());
  }

  // Another value, or new values: of operations that still run, only on request.
  reset() {
    this.shown = "";
    this.show([], "");
    const { operations, is_active } = this.relations.data;
    const isEnough = operations.filter(({ status }) => status === "COMPLETED").length >= LEAST;
    this.button.hidden = !isEnough || !is_active;
    if (!isEnough) this.show([], `At least ${LEAST} completed operations are needed.`);
    else if (is_active) this.show([], "Some operations have not ended; the shares are computed on request.");
    this.seen.disconnect();
    if (isEnough && !is_active) this.seen.observe(this.card);
  }

  look() {
    this.seen.disconnect();
    this.compute();
  }

  async compute() {
    const { target } = this.relations.view;
    const address = new URL(this.address, location.href);
    if (this.isOfIds) address.searchParams.set("ids", this.relations.data.operations.map((each) => each.operation_id));
    if (target) address.searchParams.set("target", target);
    this.button.hidden = true;
    this.show([], "Computing…");
    const answer = await getJSON(address).catch(() => null);
    if (target !== this.relations.view.target) return; // another value was chosen meanwhile
    if (!answer) {
      this.button.hidden = false;
      return this.show([], "The server is busy or did not answer. Try again in a moment.");
    }
    const { shares, problem, num_operations } = answer.data;
    this.show(shares, problem || `By ${num_operations} completed operations. With few operations, shares are rough.`);
  }

  show(shares, note) {
    this.rows.replaceChildren(...shares.map(row));
    this.card.querySelector("table").hidden = !shares.length;
    this.note.textContent = note;
  }
}

function row({ field, share }) {
  const shown = document.createElement("tr"), bar = document.createElement("progress");
  const percent = `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
  bar.className = "bar bar-blue";
  bar.max = 1;
  bar.value = share;
  bar.setAttribute("aria-label", `Share of ${field}`);
  for (const content of [field, percent, bar]) {
    const cell = document.createElement("td");
    cell.append(content);
    shown.append(cell);
  }
  shown.children[1].className = "num";
  return shown;
}
