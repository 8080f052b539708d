/**
 * Reads the bus for a part of the time and no more, so that the page stays quick. The rest is lost in the daemon, which
 * counts it: `share` says how much of it was seen.
 */

import { Rate } from "./rate.js";

// Milliseconds of each turn in which messages are read, and of the pause behind them; and messages of a turn at most, so
// that a fast machine is left alone, too: nobody sees more than some thousand a second.
const WORK = 20;
const REST = 60;
const MESSAGES = 250;
// Seconds after which a loss is of before: rates have forgotten most of it by then.
const LATELY = 5;

export class Reading {
  #seen = new Rate();
  #all = new Rate();
  #lostAt = -Infinity;

  /**
   * @param {{lost: number}} message
   * @param {number} now  seconds
   */
  note(message, now) {
    this.#seen.add(1, now);
    this.#all.add(1 + message.lost, now);
    if (message.lost) this.#lostAt = now;
  }

  /** Messages a second, seen and in all. @param {number} now  seconds */
  share(now) {
    const [seen, all] = [this.#seen.at(now), this.#all.at(now)];
    return { seen, all, samples: all > 1.01 * seen && now - this.#lostAt < LATELY };
  }
}

/**
 * @param {AsyncIterable<any>} messages
 * @param {(message: any) => void} take
 */
export async function readInTurns(messages, take) {
  let until = performance.now() + WORK;
  let left = MESSAGES;
  for await (const message of messages) {
    take(message);
    left -= 1;
    if (left && performance.now() < until) continue;
    await new Promise((resolve) => setTimeout(resolve, REST));
    until = performance.now() + WORK;
    left = MESSAGES;
  }
}
