// Follows an address: the server sends its answer again whenever that changes (an event stream). Where
// there is no stream, the address is asked again and again: the two never overlap, so that no answer
// is shown twice.
import { poll } from "./poll.js";

const SILENT = 25_000; // the server says something every ten seconds
const AGAIN = 5_000, LATEST = 60_000; // until a stream is tried again

// `address` returns the address that asks for what the page does not show yet, `ask` fetches it, and
// `show` shows an answer as text; false: nothing will change by itself any more. `isSettled`: that is so
// from the beginning; `isOfPage` as in poll.js. Returns {start, renew}.
export function follow({ address, ask, show, every, whileHidden, isOfPage = true, isSettled = false }) {
  let stream = null, heardAt = 0, pause = AGAIN, notBefore = 0;

  const hear = () => (heardAt = Date.now());
  const polling = poll(asked, every, { whileHidden, isHeld: () => stream !== null, isOfPage });

  async function asked() {
    isSettled = show(await ask(address())) === false;
    open();
    return !isSettled;
  }

  function open() {
    const isWanted = !isSettled && !document.hidden && Date.now() >= notBefore;
    if (stream || !isWanted || !("streams" in document.body.dataset)) return;
    stream = new EventSource(address());
    hear();
    stream.addEventListener("beat", hear);
    stream.addEventListener("error", lose);
    stream.addEventListener("message", ({ data }) => {
      hear();
      pause = AGAIN;
      document.body.dataset.live = "stream";
      document.body.classList.remove("is-offline");
      isSettled = show(data) === false;
      if (isSettled) close();
    });
  }

  function close() {
    stream?.close();
    stream = null;
    delete document.body.dataset.live;
  }

  // The server has gone or refuses: ask, and try a stream again later.
  function lose() {
    close();
    notBefore = Date.now() + pause * (0.75 + Math.random() / 2);
    pause = Math.min(LATEST, pause * 2);
    polling.start();
  }

  // Something that is settled may have been deleted or resumed elsewhere: ask once when the reader comes back.
  function look() {
    if (!isSettled || document.hidden) return;
    isSettled = false; // until that is answered
    polling.start();
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? close() : look()));
  addEventListener("focus", look);
  if (isOfPage) document.addEventListener("gone", close);
  addEventListener("pagehide", close);
  addEventListener("pageshow", ({ persisted }) => persisted && renew());
  setInterval(() => stream && Date.now() - heardAt > SILENT && lose(), SILENT / 5);

  // Follow what the page shows now, instead of what it showed before.
  function renew() {
    isSettled = false;
    close();
    open();
    if (!stream) polling.start();
  }

  if (isSettled) polling.stop();
  else renew();
  return {
    renew,
    // Go on, also where nothing was to change any more.
    start: () => stream || renew(),
  };
}
