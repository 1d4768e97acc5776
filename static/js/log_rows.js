// A line of a log as an element: time, level, text. Long lines are cut until they are wanted whole.
import { exact, local } from "./moments.js";
import { appendText } from "./sgr.js";

const MAX_CHARACTERS = 2000;

function part(name, className, text = "") {
  const element = document.createElement(name);
  element.className = className;
  element.textContent = text;
  return element;
}

function fill(element, text) {
  element.replaceChildren();
  if (text.length <= MAX_CHARACTERS) return appendText(element, text);
  appendText(element, text.slice(0, MAX_CHARACTERS));
  const button = part("button", "btn btn-sm log-more", `Show all ${text.length.toLocaleString("en")} characters`);
  button.type = "button";
  button.addEventListener("click", (event) => {
    event.stopPropagation();
    element.replaceChildren();
    appendText(element, text);
  });
  element.append("… ", button);
}

export function row(line) {
  const element = part("div", "log-line");
  if (line.level) element.classList.add(`log-${line.level.toLowerCase()}`);
  Object.assign(element.dataset, { id: line.id, attempt: line.attempt, group: line.group });
  const time = part("time", "log-time", local(Date.parse(line.at)).time.slice(0, 8));
  time.dateTime = line.at;
  time.title = exact(Date.parse(line.at));
  const text = part("span", "log-text");
  text.dir = "auto";
  element.append(time, part("span", "log-level", line.level), text);
  element.continues = line.continues;
  element.text = line.text.slice(line.prefix);
  fill(text, element.text);
  return element;
}

// Adds the rest of a line whose beginning another window had.
export function extend(element, text) {
  element.text += text;
  fill(element.lastChild, element.text);
}
