/**
 * Whether the daemon answers. A connection stands although the program behind it stands still; then what the page shows is
 * as old as its last answer.
 */

// Seconds for an answer, which usually takes some milliseconds.
export const PATIENCE = 3;

export class Answering {
  /** When it last answered. @type {Date | undefined} */
  last;
  /** Since when it owes an answer. @type {number | undefined} */
  #owing;

  /** @param {number} now  seconds */
  asked(now) {
    this.#owing ??= now;
  }

  /** @param {Date} when */
  answered(when) {
    this.last = when;
    this.#owing = undefined;
  }

  /** Nobody can tell: there was no connection. */
  forget() {
    this.#owing = undefined;
  }

  /** @param {number} now  seconds */
  isLate(now) {
    return this.#owing !== undefined && now - this.#owing > PATIENCE;
  }
}
