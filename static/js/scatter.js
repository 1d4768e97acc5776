// A dot for each operation at its values of two dimensions.
import { titleOf } from "./relation_scales.js";
import { label, line, svg } from "./svg.js";

const HEIGHT = 300, TOP = 14, BOTTOM = 44, LEFT = 74, RIGHT = 24, RADIUS = 5, PADDING = 10;

export function drawScatter(box, { across, up, scaleAcross, scaleUp }) {
  const width = Math.max(260, box.clientWidth - 16);
  const x = (place) => LEFT + PADDING + place * (width - LEFT - RIGHT - 2 * PADDING);
  const y = (place) => HEIGHT - BOTTOM - PADDING - place * (HEIGHT - TOP - BOTTOM - 2 * PADDING);
  const picture = svg("svg", { width, height: HEIGHT, "aria-hidden": "true" });
  for (const { place, text } of scaleUp.ticks) {
    picture.append(line("relation-tick", LEFT, y(place), width - RIGHT, y(place)), label(text, LEFT - 6, y(place) + 4, "end"));
  }
  for (const { place, text } of spaced(scaleAcross.ticks, width)) {
    picture.append(line("relation-tick", x(place), TOP, x(place), HEIGHT - BOTTOM), label(text, x(place), HEIGHT - BOTTOM + 15));
  }
  picture.append(line("relation-axis", LEFT, TOP, LEFT, HEIGHT - BOTTOM), line("relation-axis", LEFT, HEIGHT - BOTTOM, width - RIGHT, HEIGHT - BOTTOM));
  picture.append(label(named(across, scaleAcross), (LEFT + width - RIGHT) / 2, HEIGHT - 6, "middle", "relation-name"));
  const side = label(named(up, scaleUp), -(TOP + HEIGHT - BOTTOM) / 2, 12, "middle", "relation-name");
  side.setAttribute("transform", "rotate(-90)");
  picture.append(side);
  const points = across.values.map((value, i) => {
    const places = [scaleAcross.placeOf(value), scaleUp.placeOf(up.values[i])];
    return places.includes(null) ? null : [x(places[0]), y(places[1])];
  });
  const dots = points.map((point) => point && svg("circle", { cx: point[0], cy: point[1], r: RADIUS, class: "relation-dot" }));
  picture.append(...dots.filter(Boolean));
  box.replaceChildren(picture);
  return { lines: dots, distance: (i, [px, py]) => (points[i] ? Math.hypot(points[i][0] - px, points[i][1] - py) : Infinity) };
}

const named = (dimension, { isLog }) => titleOf(dimension) + (isLog ? ", log" : "");

// As many ticks as there is room for.
function spaced(ticks, width) {
  const longest = Math.max(1, ...ticks.map(({ text }) => text.length));
  const every = Math.ceil((ticks.length * (longest * 7 + 8)) / (width - LEFT - RIGHT));
  return ticks.filter((_, i) => i % every === 0);
}
