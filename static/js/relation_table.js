// The fields and values of all operations as a table, the best operation first.
import { textOf, titleOf } from "./relation_scales.js";

export function fillTable(table, { operations, dimensions }, order) {
  table.querySelector("thead").replaceChildren(row([["th", "Operation"], ...dimensions.map((each) => ["th", titleOf(each)])], "col"));
  const rows = order.map((i) => {
    const link = document.createElement("a");
    link.href = `/operations/${operations[i].operation_id}/`;
    link.textContent = operations[i].name;
    return row([["th", link], ...dimensions.map(({ values }) => ["td", textOf(values[i])])], "row");
  });
  table.querySelector("tbody").replaceChildren(...rows);
}

function row(cells, scope) {
  const shown = document.createElement("tr");
  for (const [tag, content] of cells) {
    const cell = document.createElement(tag);
    if (tag === "th") cell.scope = scope;
    cell.append(content);
    shown.append(cell);
  }
  return shown;
}
