/** A table of figures. Rows stay where they are as long as their keys do: focus, selection and readers stay with them. */

import { put } from "./elements.js";
import { line } from "./shown.js";

/** @typedef {import("./figures.js").Cell} Cell */
/**
 * `isOpen` of one that can be opened; `isPart` of one that belongs to it.
 * @typedef {{key: string, cells: Cell[], isOpen?: boolean, isPart?: boolean}} Row
 */

const ROOM = 200;

/** Rows of figures alone; several may have the same name. @param {Cell[][]} rows @returns {Row[]} */
export function plain(rows) {
  const met = new Map();
  return rows.map((cells) => {
    const [{ text }] = cells;
    met.set(text, (met.get(text) ?? 0) + 1);
    return { key: `${text} ${met.get(text)}`, cells };
  });
}

/**
 * @param {HTMLTableSectionElement} body
 * @param {HTMLElement} note
 * @param {string[]} heads
 * @param {Row[]} rows
 * @param {string} none  what the note says if there are none
 */
export function drawTable(body, note, heads, rows, none) {
  const head = /** @type {HTMLTableElement} */ (body.parentElement).tHead;
  if (head && !head.rows.length && rows.length) head.append(headOf(heads, rows[0].cells));
  const focused = body.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement) : undefined;
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  rows.slice(0, ROOM).forEach(({ key, cells, isOpen, isPart }, index) => {
    const row = old.get(key) ?? rowOf(key, cells, isOpen !== undefined);
    old.delete(key);
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] ?? null);
    row.classList.toggle("part", isPart === true);
    cells.forEach((cell, at) => fill(row.cells[at], cell, at ? undefined : isOpen));
  });
  for (const row of old.values()) row.remove();
  if (focused && focused !== document.activeElement) focused.focus({ preventScroll: true });
  put(note, rows.length > ROOM ? `The first ${ROOM} rows of ${rows.length}.` : rows.length ? "" : none);
}

/** @param {string[]} heads @param {Cell[]} cells */
function headOf(heads, cells) {
  const row = document.createElement("tr");
  row.append(...heads.map((text, at) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    cell.classList.toggle("number", cells[at].isNumber === true);
    return cell;
  }));
  return row;
}

/** @param {string} key @param {Cell[]} cells @param {boolean} canOpen */
function rowOf(key, cells, canOpen) {
  const row = document.createElement("tr");
  row.dataset.key = key;
  for (const _ of cells) row.insertCell();
  if (canOpen) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "fold";
    row.cells[0].append(button);
  }
  return row;
}

/**
 * @param {HTMLTableCellElement} cell
 * @param {Cell} figure
 * @param {boolean | undefined} isOpen
 */
function fill(cell, { text, isNumber, isWarning }, isOpen) {
  const shown = line(text);
  if (isOpen === undefined) put(cell, shown);
  else {
    const button = /** @type {HTMLElement} */ (cell.firstElementChild);
    put(button, `${isOpen ? "▾" : "▸"} ${shown}`);
    button.setAttribute("aria-expanded", `${isOpen}`);
  }
  cell.classList.toggle("number", isNumber === true);
  cell.classList.toggle("warning", isWarning === true && text !== "");
}
