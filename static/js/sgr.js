// The colours of a terminal (SGR sequences) as elements with classes; other sequences are left out.

const SEQUENCE = /\u001b(?:\[([0-9;:]*)m|\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
// Controls, and the marks that change the direction of all that follows.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

// The styles after a sequence, given those before it.
function applied(styles, parameters) {
  const next = new Set(styles);
  const codes = parameters.split(/[;:]/).map(Number);
  const colour = (index) => {
    for (const each of next) if (each.startsWith("sgr-c-")) next.delete(each);
    if (index !== null) next.add(`sgr-c-${COLOURS[index]}`);
  };
  for (let at = 0; at < codes.length; at++) {
    const code = codes[at];
    if (code === 0) next.clear();
    else if (code === 1) next.add("sgr-bold");
    else if (code === 2) next.add("sgr-dim");
    else if (code === 3) next.add("sgr-italic");
    else if (code === 4) next.add("sgr-underline");
    else if (code === 22) ["sgr-bold", "sgr-dim"].forEach((each) => next.delete(each));
    else if (code === 23) next.delete("sgr-italic");
    else if (code === 24) next.delete("sgr-underline");
    else if (code >= 30 && code <= 37) colour(code - 30);
    else if (code >= 90 && code <= 97) colour(code - 90);
    else if (code === 39) colour(null);
    else if (code === 38 || code === 48) {
      if (code === 38 && codes[at + 1] === 5 && codes[at + 2] < 16) colour(codes[at + 2] % 8);
      at += codes[at + 1] === 2 ? 4 : 2;
    }
  }
  return next;
}

// Appends the text to an element; nothing in it is HTML.
export function appendText(element, text) {
  let styles = new Set();
  let start = 0;
  const piece = (end) => {
    const shown = text.slice(start, end).replace(HIDDEN, "\ufffd");
    if (!shown) return;
    if (!styles.size) return element.append(shown);
    const span = document.createElement("span");
    span.className = [...styles].join(" ");
    span.textContent = shown;
    element.append(span);
  };
  for (const found of text.matchAll(SEQUENCE)) {
    piece(found.index);
    start = found.index + found[0].length;
    if (found[1] !== undefined) styles = applied(styles, found[1]);
  }
  piece(text.length);
}
