// The log: windows of lines that are loaded where one scrolls to, or the lines that match.
import { getJSON } from "./ask.js";
import { extend, row } from "./log_rows.js";

const MAX_ROWS = 10_000; // in the page, if chunks have fewer; beyond, those at the other end are removed
const AROUND = 2; // lines around a match
const TYPING_MS = 300;
const EDGE = 200; // pixels from an edge at which more is loaded
const AGAIN_MS = 5000; // until the log is loaded again after a request that failed

export class LogViewer {
  constructor(root) {
    this.address = root.dataset.lines;
    this.list = root.querySelector("#log");
    this.follow = root.querySelector("#follow");
    this.form = root.querySelector("#log-filter");
    this.count = root.querySelector("#log-count");
    this.empty = root.querySelector(".log-empty");
    this.pause = root.querySelector("#log-pause");
    this.newest = 0; // chunk that the server has
    this.first = this.last = 0; // chunks that are shown
    this.hasBefore = this.hasAfter = false;
    this.download = root.querySelector("#log-download");
    this.work = Promise.resolve(); // one request at a time
    this._listen();
    this.reload();
  }

  get isPaused() {
    return this.pause.getAttribute("aria-pressed") === "true";
  }

  get isSearch() {
    const { search, level } = this.form.elements;
    return Boolean(search.value || level.value);
  }

  // Takes note of the newest chunk, and whether none will follow; loads what is new where the end is shown.
  announce(newest, isOver) {
    this.empty.textContent = isOver ? "No output." : "No output yet.";
    if (newest <= this.newest) return;
    this.newest = newest;
    if (this.isPaused) this.count.textContent = "Paused; there is new output.";
    else this._do(() => (this.isSearch ? this.follow.checked && this._search() : this._more()));
  }

  // The operation was deleted: the log stays as it is.
  end() {
    this.isEnded = true;
    clearTimeout(this.again);
    this.count.textContent = "";
  }

  _do(what) {
    this.work = this.work.then(what).catch(() => {
      if (this.isEnded) return;
      this.count.textContent = "The log could not be loaded; trying again.";
      clearTimeout(this.again);
      this.again = setTimeout(() => this.isPaused || this.reload(), AGAIN_MS);
    });
    return this.work;
  }

  _listen() {
    let typing;
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => {
      clearTimeout(typing);
      const attempt = this.form.elements.attempt.value;
      this.download.search = attempt && `?attempt=${attempt}`;
      typing = setTimeout(() => this.reload(), TYPING_MS);
    });
    this.follow.addEventListener("change", () => {
      if (!this.follow.checked) return;
      if (this.hasAfter) this.reload();
      else this._toEnd();
    });
    this.pause.addEventListener("click", () => {
      this.pause.setAttribute("aria-pressed", String(!this.isPaused));
      this.pause.textContent = this.isPaused ? "Continue" : "Pause";
      if (!this.isPaused) this._do(() => (this.isSearch ? this._search() : this._more()));
    });
    this.list.addEventListener("scroll", () => this._scrolled(), { passive: true });
    this.list.addEventListener("click", ({ target }) => {
      const line = target.closest(".log-line");
      if (line && this.isSearch && !getSelection().toString()) this._show(Number(line.dataset.id), line.text);
    });
  }

  reload() {
    return this._do(() => (this.isSearch ? this._search() : this._tail()));
  }

  _ask(query) {
    const attempt = this.form.elements.attempt.value;
    return getJSON(`${this.address}?${new URLSearchParams(attempt ? { ...query, attempt } : query)}`)
      .then((answer) => answer.data);
  }

  _toEnd() {
    this.list.scrollTop = this.list.scrollHeight;
  }

  async _tail() {
    const found = await this._ask({});
    this._replace(found);
    this.hasAfter = false;
    this.count.textContent = "";
    this._toEnd();
  }

  async _search() {
    const { search, level } = this.form.elements;
    const query = { around: AROUND };
    if (search.value) query.search = search.value;
    if (level.value) query.level = level.value;
    const found = await this._ask(query);
    this._replace(found);
    this.list.querySelectorAll(".log-line").forEach((each, index) => {
      each.classList.toggle("log-around", !found.lines[index].is_hit);
    });
    const only = found.has_before ? "; the last ones are shown" : "";
    this.count.textContent = `${found.count.toLocaleString("en")} ${found.count === 1 ? "line" : "lines"}${only}`;
    this.hasBefore = this.hasAfter = false;
    this._toEnd();
  }

  // Shows a line of a search in the whole log.
  _show(id, text) {
    this.form.elements.search.value = this.form.elements.level.value = "";
    this.follow.checked = false;
    return this._do(async () => {
      this._replace(await this._ask({ after: id - 1 }));
      this.count.textContent = "";
      if (this.hasBefore) await this._earlier();
      const line = [...this.list.querySelectorAll(`[data-id="${id}"]`)].find((each) => each.text === text);
      line?.scrollIntoView({ block: "center" });
    });
  }

  _replace(found) {
    this.list.replaceChildren(...this._rows(found.lines));
    [this.first, this.last] = [found.first_id, found.last_id];
    [this.hasBefore, this.hasAfter] = [found.has_before, found.has_after];
    this.empty.hidden = this.isSearch || this.list.childElementCount > 0;
  }

  _rows(lines) {
    const { attempt } = this.form.elements;
    for (let number = attempt.options.length; number <= (lines.at(-1)?.attempt ?? 0); number++) {
      attempt.add(new Option(`attempt ${number}`, number));
    }
    return lines.map(row).map((each, index, all) => {
      const before = all[index - 1];
      if (before && before.dataset.attempt !== each.dataset.attempt) each.classList.add("log-new-attempt");
      if (before && before.dataset.group !== each.dataset.group) each.classList.add("log-gap");
      return each;
    });
  }

  async _more() {
    if (this.isPaused) return undefined;
    if (this.hasAfter && this.follow.checked) return this._tail();
    if (this.hasAfter) return undefined; // a window in the middle
    return this._later(() => this.isPaused);
  }

  // `isUnwanted` decides once the lines are here: somebody may have paused meanwhile.
  async _later(isUnwanted = () => false) {
    const found = await this._ask({ after: this.last });
    if (isUnwanted()) return;
    this.hasAfter = found.has_after;
    if (!found.lines.length) return;
    let lines = found.lines;
    if (lines[0].continues && this.list.lastChild) {
      extend(this.list.lastChild, lines[0].text);
      lines = lines.slice(1);
    }
    this.list.append(...this._rows(lines));
    this.last = found.last_id;
    this.empty.hidden = true;
    this._trim("firstChild", (left) => ([this.first, this.hasBefore] = [left, true]));
    if (this.follow.checked) this._toEnd();
  }

  async _earlier() {
    const found = await this._ask({ before: this.first });
    this.hasBefore = found.has_before;
    if (!found.lines.length) return;
    const height = this.list.scrollHeight;
    const rows = this._rows(found.lines);
    const cut = this.list.firstChild;
    if (cut?.continues) {
      extend(rows.at(-1), cut.text);
      cut.remove();
    }
    this.list.prepend(...rows);
    this.first = found.first_id;
    this.list.scrollTop += this.list.scrollHeight - height;
    this._trim("lastChild", (left) => ([this.last, this.hasAfter] = [left, true]));
  }

  // Remove rows at one end: whole chunks only, so that none is loaded in part, and half of the rows stay.
  _trim(end, done) {
    const { list } = this;
    while (list.childElementCount > MAX_ROWS) {
      const { id } = list[end].dataset;
      const chunk = [...list.children].filter((row) => row.dataset.id === id);
      if (list.childElementCount - chunk.length < MAX_ROWS / 2) return;
      for (const row of chunk) row.remove();
      done(Number(list[end].dataset.id));
    }
  }

  _scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.list;
    const below = scrollHeight - scrollTop - clientHeight;
    if (!this.list.clientHeight || this.isSearch) return;
    this.follow.checked = below < 24 && !this.hasAfter;
    if (scrollTop < EDGE || below < EDGE) this._fill();
  }

  // Loads what is beyond an edge that is near, when its turn comes: the rows may be others by then.
  _fill() {
    if (this.isLoading) return;
    this.isLoading = true;
    this._do(() => {
      const { scrollTop, scrollHeight, clientHeight } = this.list;
      if (scrollTop < EDGE && this.hasBefore) return this._earlier();
      if (scrollHeight - scrollTop - clientHeight < EDGE && this.hasAfter) return this._later();
      return undefined;
    }).finally(() => (this.isLoading = false));
  }
}
