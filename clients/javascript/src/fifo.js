/** First in, first out, however many there are: an array moves all of them when the first one goes. */

// So many places of those who left, at least, before the others move up.
const SLACK = 64;

/** @template T */
export class Fifo {
  /** @type {(T | undefined)[]} */
  #items = [];
  #first = 0;

  /** @param {Iterable<T>} [items] */
  constructor(items = []) {
    this.#items = [...items];
  }

  get length() {
    return this.#items.length - this.#first;
  }

  /** @returns {T | undefined} */
  get first() {
    return this.#items[this.#first];
  }

  /** @param {T} item */
  push(item) {
    this.#items.push(item);
  }

  /** @returns {T | undefined} */
  shift() {
    if (!this.length) return undefined;
    const item = this.#items[this.#first];
    this.#items[this.#first++] = undefined;
    if (this.#first >= SLACK && 2 * this.#first >= this.#items.length) {
      this.#items = this.#items.slice(this.#first);
      this.#first = 0;
    }
    return item;
  }

  clear() {
    this.#items = [];
    this.#first = 0;
  }

  /** @param {T} item */
  remove(item) {
    const at = this.#items.indexOf(item, this.#first);
    if (at >= 0) this.#items.splice(at, 1);
  }

  *[Symbol.iterator]() {
    for (let at = this.#first; at < this.#items.length; at++) yield /** @type {T} */ (this.#items[at]);
  }
}
