/**
 * The latest messages that somebody wants to see, without a document. While it is paused it stays as it is, and counts
 * what passes. What comes is of the pattern already (following.js).
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
  #limit;

  constructor(limit = LINES_LIMIT) {
    this.#limit = limit;
  }

  /**
   * @param {{channel: string, text: string}} message
   * @param {Date} at
   */
  note(message, at) {
    if (!this.#hasText(message)) return;
    if (this.isPaused) {
      this.passed += 1;
      return;
    }
    this.lines.push({ message, at });
    if (this.lines.length > this.#limit) this.lines.shift();
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
    this.lines = this.lines.filter(({ message }) => isNamed(message.channel) && this.#hasText(message));
  }

  /** @param {{text: string}} message */
  #hasText({ text }) {
    return !this.contains || text.includes(this.contains);
  }
}
