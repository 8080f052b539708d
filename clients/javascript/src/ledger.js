/** What was published, and what came of it: a barrier tells. */

import { rejected, UnconfirmedError } from "./errors.js";

/** @typedef {import("./errors.js").RejectedError} RejectedError */

/** The daemon has a message once it has answered a later request. */
export class Ledger {
  /** Messages, ever. */
  published = 0;
  #confirmed = 0;
  /** Since the last barrier: those in doubt, the first that was rejected, and how many were. */
  #inDoubt = 0;
  /** @type {RejectedError | undefined} */
  #rejection;
  #rejections = 0;

  /** Whether the daemon has all of them, as far as it has said by now. */
  get isConfirmed() {
    return this.published === this.#confirmed;
  }

  /** Whether a barrier could have something to say. */
  get isUnsettled() {
    return !this.isConfirmed || this.#inDoubt > 0 || this.#rejections > 0;
  }

  /**
   * The daemon has all that was published before.
   * @param {number} published
   */
  confirm(published) {
    this.#confirmed = Math.max(this.#confirmed, published);
  }

  /** The connection is broken. Returns how many messages are in doubt for that. */
  break() {
    const doubt = this.published - this.#confirmed;
    this.#inDoubt += doubt;
    this.#confirmed = this.published;
    return doubt;
  }

  /** @param {RejectedError} error */
  reject(error) {
    this.#rejection ??= error;
    this.#rejections++;
  }

  /** Throws what is not on the bus, or may not be, and begins anew. */
  settle() {
    const [rejection, count, doubt] = [this.#rejection, this.#rejections, this.#inDoubt];
    [this.#rejection, this.#rejections, this.#inDoubt] = [undefined, 0, 0];
    if (rejection && count > 1) throw rejected(`${rejection.code} ${rejection.text}; ${count - 1} more rejected`);
    if (rejection) throw rejection;
    if (doubt) throw new UnconfirmedError(`the daemon went away: up to ${doubt} messages may not have been published`);
  }
}
