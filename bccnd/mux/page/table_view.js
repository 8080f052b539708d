/** A table of figures, drawn anew as a whole: it has few rows, and seldom. */

const ROOM = 200;

/**
 * @param {HTMLTableSectionElement} body
 * @param {HTMLElement} note
 * @param {string[]} heads
 * @param {import("./figures.js").Cell[][]} rows
 */
export function drawTable(body, note, heads, rows) {
  const head = /** @type {HTMLTableElement} */ (body.parentElement).tHead;
  if (head && !head.rows.length && rows.length) {
    const row = head.insertRow();
    heads.forEach((text, index) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = text;
      if (rows[0][index].isNumber) cell.classList.add("number");
      row.append(cell);
    });
  }
  body.replaceChildren(...rows.slice(0, ROOM).map(rowOf));
  note.textContent = rows.length > ROOM ? `The first ${ROOM} of ${rows.length}.` : rows.length ? "" : "None.";
}

/** @param {import("./figures.js").Cell[]} cells */
function rowOf(cells) {
  const row = document.createElement("tr");
  for (const { text, isNumber, isWarning } of cells) {
    const cell = row.insertCell();
    cell.textContent = text;
    if (isNumber) cell.classList.add("number");
    if (isWarning) cell.classList.add("warning");
  }
  return row;
}
