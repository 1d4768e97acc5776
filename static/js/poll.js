// Asks again and again: not while the tab is hidden, slower while the server does not answer, no more
// once what the page is about was deleted.
import { Gone } from "./ask.js";

const SLOWEST = 30_000;
const HIDDEN = 10_000; // at least between two requests of a hidden tab

// `ask` returns (a promise of) false to stop for good. `whileHidden` says whether to ask in a hidden
// tab, too; `isHeld` whether nothing is asked until `now` is called. `isOfPage`: it ends with what the
// page is about. Returns {now, stop, start}.
export function poll(ask, every, { whileHidden = () => false, isHeld = () => false, isOfPage = true } = {}) {
  let timer = 0, wait = every, isStopped = false, isAsking = false, isAskedAgain = false;

  async function round() {
    clearTimeout(timer);
    if (isStopped || isAsking || isHeld() || (document.hidden && !whileHidden())) return;
    isAsking = true;
    isAskedAgain = false;
    try {
      isStopped = (await ask()) === false || isStopped;
      wait = every;
    } catch (error) {
      if (error instanceof Gone && isOfPage) {
        wait = every;
        document.dispatchEvent(new Event("gone"));
      } else {
        // The pages that a server left when it went do not all come back to it in the same moment.
        wait = Math.min(SLOWEST, wait * (1.5 + Math.random()));
      }
    } finally {
      isAsking = false;
    }
    document.body.classList.toggle("is-offline", wait > every);
    if (isAskedAgain) {
      isStopped = false; // what was answered is from before what was done meanwhile
      round();
      return;
    }
    if (!isStopped) timer = setTimeout(round, document.hidden ? Math.max(wait, HIDDEN) : wait);
  }

  function stop() {
    isStopped = true;
    clearTimeout(timer);
  }

  document.addEventListener("visibilitychange", () => document.hidden || round());
  if (isOfPage) document.addEventListener("gone", stop);
  timer = setTimeout(round, every);
  return {
    now: round,
    stop,
    start() {
      isStopped = false;
      isAskedAgain = isAsking;
      return round();
    },
  };
}
