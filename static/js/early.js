// What is changed, typed or pressed before the other scripts have arrived is repeated once they have, so
// that the page shows what its fields say and a button is not pressed in vain. Classic script in the head,
// before everything else. Without scripts, buttons of this type have no effect; others send their form.
(() => {
  const types = ["input", "change", "click"];
  const noted = Object.fromEntries(types.map((type) => [type, new Set()]));
  const note = ({ target, type }) => {
    const element = type === "click" ? target.closest?.("button[type=button]") : target;
    const isAnswered = type === "click" && window.bootstrap && element?.dataset.bsToggle;
    if (element && !isAnswered) noted[type].add(element);
  };
  for (const type of types) document.addEventListener(type, note, true);
  const repeat = () => {
    for (const type of ["input", "change"]) {
      for (const field of noted[type]) field.dispatchEvent(new Event(type, { bubbles: true }));
    }
    for (const button of noted.click) button.click();
  };
  document.addEventListener("DOMContentLoaded", () => {
    for (const type of types) document.removeEventListener(type, note, true);
    setTimeout(repeat); // after the listeners of all scripts, of which this one is the first
  });
})();
