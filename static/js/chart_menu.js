// The menu of a chart: its size, files, and its place among the others.
import { savePicture } from "./picture.js";
import { showTable } from "./chart_table.js";

export function startMenu(chart) {
  const menu = chart.card.querySelector("[data-menu]");
  const act = (what) => ACTIONS[what](chart);
  menu.addEventListener("click", ({ target }) => {
    const what = target.closest("[data-do]")?.dataset.do;
    if (what) act(what);
    if (what || target.closest("a")) menu.open = false;
  });
  menu.addEventListener("toggle", () => menu.open && offer(chart, menu));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget && !menu.contains(relatedTarget)) menu.open = false;
  });
  menu.querySelector("summary").setAttribute("aria-label", `Menu of ${chart.title}`);
}

const ACTIONS = {
  screen: (chart) => (document.fullscreenElement ? document.exitFullscreen() : chart.card.requestFullscreen()),
  picture: savePicture,
  table: showTable,
  pin: (chart) => chart.charts.choose((choice) => choice.toggle("pinned", chart.name)),
  hide: (chart) => chart.charts.choose((choice) => choice.toggle("hidden", chart.name)),
  earlier: (chart) => chart.charts.move(chart, -1),
  later: (chart) => chart.charts.move(chart, 1),
};

// What the menu has now.
function offer(chart, menu) {
  const csv = menu.querySelector("[data-csv]"), address = chart.charts.csvOf(chart);
  csv.hidden = !address;
  csv.href = address ?? "";
  menu.querySelector("[data-do=pin]").textContent = chart.charts.choice.pinned.has(chart.name) ? "Unpin" : "Pin to the top";
  menu.querySelector("[data-do=screen]").textContent = document.fullscreenElement ? "Leave full screen" : "Full screen";
}

// A click elsewhere closes it.
document.addEventListener("click", ({ target }) => {
  for (const menu of document.querySelectorAll("[data-menu][open]")) if (!menu.contains(target)) menu.open = false;
});
