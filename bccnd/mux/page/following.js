/**
 * The subscription of the tail: one pattern at a time, on a connection of its own, so that a narrow pattern is seen whole
 * however much there is besides. A pattern that is refused leaves the last one in force.
 */

import { readInTurns } from "./reading.js";

export class Following {
  /** @type {any} */
  #current;
  #changes = 0;
  #bus;
  #take;

  /**
   * @param {{subscribe(pattern: string): Promise<any>}} bus
   * @param {(message: any) => void} take
   */
  constructor(bus, take) {
    this.#bus = bus;
    this.#take = take;
  }

  /**
   * Returns whether it follows this pattern now, and not one that was asked for meanwhile. Throws why not.
   * @param {string} pattern
   */
  async follow(pattern) {
    const change = ++this.#changes;
    const fresh = await this.#bus.subscribe(pattern);
    if (change !== this.#changes) {
      await fresh.close();
      return false;
    }
    const old = this.#current;
    this.#current = fresh;
    void this.#read(fresh);
    await old?.close();
    return true;
  }

  /** @param {any} subscription */
  async #read(subscription) {
    await readInTurns(subscription, (message) => {
      if (subscription === this.#current) this.#take(message);
    }).catch(() => {}); // whoever has the connection says why it has ended
  }
}
