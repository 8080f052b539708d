/** A rate that forgets: each message counts for less as time goes, so no timer has to turn it over. */

// Seconds until a message counts for a third of what it did, and the least that a young rate is said to have lasted.
const MEMORY = 5;
const YOUTH = 1;

export class Rate {
  #weight = 0;
  #at = 0;
  #since = NaN;

  /**
   * @param {number} count  messages
   * @param {number} now  seconds
   */
  add(count, now) {
    if (Number.isNaN(this.#since)) this.#since = now;
    this.#weight = this.#left(now) + count;
    this.#at = now;
  }

  /** Messages a second. @param {number} now  seconds */
  at(now) {
    if (Number.isNaN(this.#since)) return 0;
    const age = Math.max(YOUTH, now - this.#since);
    return this.#left(now) / MEMORY / (1 - Math.exp(-age / MEMORY));
  }

  /** @param {number} now */
  #left(now) {
    return this.#weight * Math.exp(Math.min(0, this.#at - now) / MEMORY);
  }
}
