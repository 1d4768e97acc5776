// Which charts are shown, and in which order: kept by the server for the user, so that other browsers show
// the same. The browser's storage has a copy for each user: for the time until the server has answered, with
// the changes that the server has not confirmed yet. A change is sent, never the whole: it is one to what the
// server has, also where this page does not know it.
import { getJSON, post } from "./ask.js";
import { order } from "./series.js";

const KEY = "chart-panels"; // alone: the choice of a version that kept it in the browser only
const ADDRESS = "/charts/choice";

export class PanelChoice {
  // `first`: the chart that comes first where nothing else is chosen. `changed` is called once the server
  // had another choice.
  constructor(first, changed) {
    this.first = first;
    this.changed = changed;
    this.user = document.body.dataset.user;
    this.key = `${KEY}.${this.user}`;
    forgetOthers(this.key);
    this.adopt();
    this.exchange();
  }

  get stored() {
    return read(this.key);
  }

  set stored(value) {
    localStorage.setItem(this.key, JSON.stringify(value));
  }

  // Shows what the server had, with the changes that it has not confirmed.
  adopt() {
    const { choice, unsent } = this.stored;
    this.hidden = new Set(choice.hidden);
    this.pinned = new Set(choice.pinned);
    this.order = choice.order ?? []; // names; the others follow
    unsent.forEach(({ change }) => this.apply(change));
  }

  apply({ hide = [], show = [], pin = [], unpin = [], order = [] }) {
    for (const name of hide) this.hidden.add(name);
    for (const name of show) this.hidden.delete(name);
    for (const name of pin) this.pinned.add(name);
    for (const name of unpin) this.pinned.delete(name);
    this.order = [...order, ...this.order.filter((each) => !order.includes(each))];
  }

  get text() {
    return JSON.stringify({ hidden: [...this.hidden], pinned: [...this.pinned], order: this.order });
  }

  // In or out of one of the sets, "hidden" or "pinned".
  toggle(what, name) {
    const [add, remove] = { hidden: ["hide", "show"], pinned: ["pin", "unpin"] }[what];
    this.keep({ [this[what].has(name) ? remove : add]: [name] });
  }

  showAll() {
    this.keep({ show: [...this.hidden] });
  }

  // `names`: as they are displayed now. Moves one of them by a number of places.
  move(names, name, by) {
    const from = names.indexOf(name), to = Math.min(names.length - 1, Math.max(0, from + by));
    names.splice(to, 0, ...names.splice(from, 1));
    this.keep({ order: names });
  }

  compare = (a, b) =>
    this.pinned.has(b) - this.pinned.has(a) || this.place(a) - this.place(b) || (b === this.first) - (a === this.first) || order(a, b);

  place(name) {
    const place = this.order.indexOf(name);
    return place < 0 ? this.order.length : place;
  }

  keep(change) {
    const { choice, unsent } = this.stored;
    this.stored = { choice, unsent: [...unsent, marked(change)] };
    this.apply(change);
    this.exchange();
  }

  // One request at a time, so that changes are stored in their order.
  async exchange() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      while (await this.askOnce()) continue;
    } finally {
      this.isAsking = false;
    }
  }

  // Sends the oldest change, or fetches the choice. Returns whether there is more to send.
  async askOnce() {
    const old = localStorage.getItem(KEY), sent = old ? null : this.stored.unsent[0];
    const answer = await (sent ? this.send(sent.change) : this.fetch()).catch(() => null);
    const isAnswered = answer && "choice" in answer, isRefused = answer && "errors" in answer;
    if (!isAnswered && !isRefused) return false; // no answer, or signed out: sent with the next page
    const before = this.text, { choice, unsent } = this.stored;
    const left = unsent.filter(({ id }) => id !== sent?.id);
    if (old && answer.choice === null) left.unshift(marked(changeTo(JSON.parse(old))));
    this.stored = { choice: isAnswered ? (answer.choice ?? {}) : choice, unsent: left };
    if (old) localStorage.removeItem(KEY);
    this.adopt();
    if (this.text !== before) this.changed();
    return left.length > 0;
  }

  fetch() {
    return getJSON(`${ADDRESS}?${new URLSearchParams({ user: this.user })}`);
  }

  send(change) {
    const body = new FormData();
    body.set("user", this.user);
    body.set("change", JSON.stringify(change));
    return post(ADDRESS, body);
  }
}

const read = (key) => ({ choice: {}, unsent: [], ...JSON.parse(localStorage.getItem(key) ?? "{}") });

// Another page may send the same change; each of them removes that one only.
const marked = (change) => ({ id: `${Date.now()}-${Math.random()}`, change });

const changeTo = ({ hidden = [], pinned = [], order = [] }) => ({ hide: hidden, pin: pinned, order });

// The copies of other users; what the server does not have stays, until they sign in again.
function forgetOthers(key) {
  for (const each of Object.keys(localStorage)) {
    if (each.startsWith(`${KEY}.`) && each !== key && !read(each).unsent.length) localStorage.removeItem(each);
  }
}
