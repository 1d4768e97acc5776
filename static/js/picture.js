// A chart as a PNG file, with its title and its legend.
import { colour } from "./colours.js";

const MARGIN = 16, LINE = 22; // CSS pixels

export function savePicture(chart) {
  const plotted = chart.body.querySelector("canvas");
  const scale = plotted.width / plotted.clientWidth;
  const names = chart.plot.series.slice(1).filter(({ show, isQuiet }) => show && !isQuiet);
  const picture = document.createElement("canvas");
  picture.width = plotted.width + 2 * MARGIN * scale;
  picture.height = plotted.height + (2 * MARGIN + 2 * LINE) * scale;
  const pen = picture.getContext("2d");
  pen.fillStyle = colour("--tblr-bg-surface");
  pen.fillRect(0, 0, picture.width, picture.height);
  pen.drawImage(plotted, MARGIN * scale, (MARGIN + LINE) * scale);
  pen.scale(scale, scale);
  write(pen, chart.title, "600 15px", MARGIN, MARGIN + 12, colour("--tblr-body-color"));
  let x = MARGIN;
  for (const { label, stroke } of names) {
    const name = chart.nameOf(label), y = picture.height / scale - MARGIN;
    write(pen, "■", "13px", x, y, typeof stroke === "function" ? stroke() : stroke);
    write(pen, name, "13px", x + 16, y, colour("--tblr-body-color"));
    x += 32 + pen.measureText(name).width;
  }
  picture.toBlob((blob) => save(blob, `${chart.title}.png`));
}

function write(pen, text, font, x, y, ink) {
  pen.font = `${font} 'Inter Variable', sans-serif`;
  pen.fillStyle = ink;
  pen.fillText(text, x, y);
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
