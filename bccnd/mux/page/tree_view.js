/**
 * The tree of channels as a treegrid: arrows move and open, as in any tree; a tab stops at one row of it. All rows are
 * there, and those in sight have their figures: to lay out a thousand twice a second would take the page's time.
 */

import { put } from "./elements.js";
import { line, rate, shown } from "./shown.js";

const ROOM = 1500;
// Rows above and below those in sight that have their figures, too.
const SPARE = 20;

export class TreeView {
  #tree;
  #body;
  #note;
  #region;
  #none;
  #open = new Set();
  #focused = "";
  #factor = 1;
  /** @type {Row[]} */
  #rows = [];

  /**
   * @param {import("./tree.js").Tree} tree
   * @param {HTMLElement} body  of the table
   * @param {HTMLElement} note
   * @param {HTMLElement} region  in which it scrolls
   * @param {string} none  what the note says where there are no channels
   */
  constructor(tree, body, note, region, none) {
    this.#tree = tree;
    this.#body = body;
    this.#note = note;
    this.#region = region;
    this.#none = none;
    region.addEventListener("scroll", () => this.#fill());
    body.addEventListener("click", ({ target }) => this.#turn(this.#at(target)));
    body.addEventListener("keydown", (event) => this.#pressed(event));
    body.addEventListener("focusin", ({ target }) => (this.#focused = this.#rows[this.#at(target)]?.path ?? ""));
  }

  /**
   * @param {number} now  seconds
   * @param {number} factor  how many messages each that was seen stands for
   */
  draw(now, factor) {
    this.#factor = factor;
    const { rows, more } = this.#tree.rows(this.#open, now, ROOM);
    this.#rows = rows;
    while (this.#body.children.length > rows.length) this.#body.lastElementChild?.remove();
    while (this.#body.children.length < rows.length) this.#body.append(emptyRow());
    const stop = Math.max(0, rows.findIndex(({ path }) => path === this.#focused));
    const hadFocus = this.#body.contains(document.activeElement);
    rows.forEach((row, index) => name(this.#body.children[index], row, index === stop));
    this.#fill();
    // Rows above may have come or gone: the focus stays with its channel.
    const focused = /** @type {HTMLElement} */ (this.#body.children[stop]);
    if (hadFocus && focused !== document.activeElement) focused.focus({ preventScroll: true });
    const notes = [];
    if (more) notes.push(`${more} more rows have no room here: close some.`);
    if (this.#tree.homeless) notes.push(`${this.#tree.homeless} messages were on channels beyond the ${this.#tree.size} that the tree holds.`);
    if (!rows.length) notes.push(this.#none);
    put(this.#note, notes.join(" "));
  }

  /** Figures where somebody may see them. */
  #fill() {
    const height = /** @type {HTMLElement | null} */ (this.#body.firstElementChild)?.offsetHeight || 1;
    const first = Math.max(0, Math.floor(this.#region.scrollTop / height) - SPARE);
    const count = Math.ceil(this.#region.clientHeight / height) + 2 * SPARE;
    this.#rows.slice(first, first + count).forEach((row, index) => {
      fill(this.#body.children[first + index], row, this.#factor);
    });
  }

  /** @param {EventTarget | null} target */
  #at(target) {
    const row = /** @type {Element} */ (target).closest("tr");
    return [...this.#body.children].indexOf(/** @type {Element} */ (row));
  }

  /** @param {KeyboardEvent} event */
  #pressed(event) {
    const index = this.#at(event.target);
    const row = this.#rows[index];
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const parent = () => this.#rows.findLastIndex(({ depth }, at) => at < index && depth < row.depth);
    const moves = {
      ArrowDown: () => this.#focus(index + 1),
      ArrowUp: () => this.#focus(index - 1),
      Home: () => this.#focus(0),
      End: () => this.#focus(this.#rows.length - 1),
      ArrowRight: () => (row.isOpen === false ? this.#turn(index) : this.#focus(index + (row.isOpen ? 1 : 0))),
      ArrowLeft: () => (row.isOpen ? this.#turn(index) : this.#focus(parent())),
      Enter: () => this.#turn(index),
      " ": () => this.#turn(index),
    };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (!move) return;
    event.preventDefault();
    move();
  }

  /** @param {number} index */
  #focus(index) {
    const row = /** @type {HTMLElement | undefined} */ (this.#body.children[index]);
    if (!row) return;
    for (const each of this.#body.children) /** @type {HTMLElement} */ (each).tabIndex = each === row ? 0 : -1;
    row.focus();
  }

  /** @param {number} index */
  #turn(index) {
    const row = this.#rows[index];
    if (!row || row.isOpen === undefined) return;
    if (row.isOpen) this.#open.delete(row.path);
    else this.#open.add(row.path);
    this.draw(performance.now() / 1000, this.#factor);
  }
}

function emptyRow() {
  const row = document.createElement("tr");
  row.append(...["", "number", ""].map((name) => {
    const cell = document.createElement("td");
    cell.className = name;
    cell.setAttribute("role", "gridcell");
    return cell;
  }));
  return row;
}

/** @typedef {ReturnType<import("./tree.js").Tree["rows"]>["rows"][number]} Row */

/**
 * @param {Element} element
 * @param {Row} row
 * @param {boolean} isStop
 */
function name(element, row, isStop) {
  const [cell, ...figures] = element.children;
  if (element.getAttribute("data-path") !== row.path) {
    element.setAttribute("data-path", row.path);
    for (const each of figures) put(each, ""); // they were those of another channel
  }
  mark(element, "aria-level", `${row.depth + 1}`);
  mark(element, "aria-expanded", row.isOpen === undefined ? undefined : `${row.isOpen}`);
  mark(element, "tabindex", isStop ? "0" : "-1");
  cell.className = `depth-${row.depth}`;
  const sign = row.isOpen === undefined ? "\u2003" : row.isOpen ? "▾ " : "▸ ";
  put(cell, sign + (line(row.name) || "(empty)"));
}

/**
 * @param {Element} element
 * @param {Row} row
 * @param {number} factor
 */
function fill(element, row, factor) {
  const [, figure, last] = element.children;
  put(figure, rate(row.rate * factor));
  put(last, row.last ? shown(row.last.subarray(0, 120), "text") || "(empty)" : `${row.channels.toLocaleString("en")} channel${row.channels === 1 ? "" : "s"}`);
  last.classList.toggle("from-before", !row.last?.length);
}

/**
 * @param {Element} element
 * @param {string} name
 * @param {string | undefined} value
 */
function mark(element, name, value) {
  if (value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
