// Elements of SVG.
const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const line = (name, x1, y1, x2, y2) => svg("line", { class: name, x1, y1, x2, y2 });

// `anchor`: start, middle or end.
export const label = (text, x, y, anchor = "middle", name = "") => svg("text", { x, y, class: name, "text-anchor": anchor }, text);
