// What is changed or typed before the other scripts have arrived is repeated once they have, so that
// the page shows what its fields say. Classic script in the head, before everything else.
(() => {
  const types = ["input", "change"];
  const changed = { input: new Set(), change: new Set() };
  const note = ({ target, type }) => changed[type].add(target);
  for (const type of types) document.addEventListener(type, note, true);
  const repeat = () => {
    for (const type of types) {
      for (const field of changed[type]) field.dispatchEvent(new Event(type, { bubbles: true }));
    }
  };
  document.addEventListener("DOMContentLoaded", () => {
    for (const type of types) document.removeEventListener(type, note, true);
    setTimeout(repeat); // after the listeners of all scripts, of which this one is the first
  });
})();
