/** To wait for something until it is there, its time is over, or an AbortSignal ends it. Time is in milliseconds. */

// The longest that a timer takes.
const TIMER_LIMIT = 2 ** 31 - 1;

export const now = () => performance.now();

/** Something that is waited for. `error`: why it ended in vain. */
export class Pending {
  done = false;
  /** @type {Error | undefined} */
  error = undefined;
  /** Called once it is done, or anything about it has changed. @type {Set<() => void>} */
  wakers = new Set();

  /** @param {Error} [error] */
  finish(error) {
    this.error = error ?? this.error;
    this.done = true;
    this.wake();
  }

  wake() {
    for (const wake of [...this.wakers]) wake();
  }
}

/**
 * Returns when something is done or has changed, or when the deadline has passed. Throws the reason of the signal.
 * @param {Pending} pending
 * @param {number} deadline  as of `now`
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function wait(pending, deadline, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    if (pending.done) {
      resolve();
      return;
    }
    const left = Math.max(0, deadline - now());
    const timer = left === Infinity ? undefined : setTimeout(end, Math.min(left, TIMER_LIMIT));
    const release = () => {
      clearTimeout(timer);
      pending.wakers.delete(end);
      signal?.removeEventListener("abort", abort);
    };
    function abort() {
      release();
      reject(signal?.reason);
    }
    function end() {
      release();
      resolve();
    }
    pending.wakers.add(end);
    signal?.addEventListener("abort", abort);
  });
}
