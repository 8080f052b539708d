/**
 * The latest messages that somebody wants to see, without a document. While it is paused it stays as it is, and counts
 * what passes. What comes is of the pattern already (following.js), and the latest of that stay, whatever text is asked
 * for: a slip of the finger hides them and costs none.
 */

import { matches } from "./client/patterns.js";

export const LINES_LIMIT = 200;

export class Tail {
  /** Empty: none is followed yet. */
  pattern = "";
  contains = "";
  isPaused = false;
  /** Messages that would have been shown since the pause began. */
  passed = 0;
  /** @type {{message: any, at: Date}[]} the oldest first */
  lines = [];
  /** @type {{message: any, at: Date}[]} with any text */
  #latest = [];
  #limit;

  constructor(limit = LINES_LIMIT) {
    this.#limit = limit;
  }

  /**
   * @param {{channel: string, text: string}} message
   * @param {Date} at
   */
  note(message, at) {
    if (this.isPaused) {
      this.passed += +this.#hasText(message);
      return;
    }
    const entry = { message, at };
    for (const all of this.#hasText(message) ? [this.#latest, this.lines] : [this.#latest]) {
      all.push(entry);
      if (all.length > this.#limit) all.shift();
    }
  }

  /** @param {boolean} isPaused */
  pause(isPaused) {
    this.isPaused = isPaused;
    this.passed = 0;
  }

  /**
   * Another wish also holds for what is there.
   * @param {string} pattern
   * @param {string} contains
   */
  filter(pattern, contains) {
    this.pattern = pattern;
    this.contains = contains;
    const isNamed = (/** @type {string} */ channel) => pattern === ">" || matches(pattern, channel);
    const older = this.lines.filter((entry) => !this.#latest.includes(entry));
    const all = [...older, ...this.#latest].filter(({ message }) => isNamed(message.channel));
    this.#latest = all.slice(-this.#limit);
    this.lines = all.filter(({ message }) => this.#hasText(message)).slice(-this.#limit);
  }

  /** @param {{text: string}} message */
  #hasText({ text }) {
    return !this.contains || text.includes(this.contains);
  }
}
