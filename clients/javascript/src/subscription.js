/** A subscription, as the program has it. */

import { ClosedError, InvalidError } from "./errors.js";
import { Stream } from "./inbox.js";
import { report } from "./notices.js";
import { wait } from "./waiting.js";

/** @typedef {import("./protocol.js").Message} Message */
/** @typedef {import("./client.js").Client} Client */
/** @typedef {(message: Message) => unknown} Callback */
/** @typedef {{timeout?: number, signal?: AbortSignal}} Patience  milliseconds; when to give up */

/** Node 18 has it not by itself. @type {typeof Symbol.asyncDispose} */
export const asyncDispose = Symbol.asyncDispose ?? /** @type {any} */ (Symbol.for("Symbol.asyncDispose"));

/**
 * One subscription to a pattern. It lasts until its `close`, even if the program keeps no reference to it.
 *
 * Without a callback its messages are in the client's stream, in the order of all, until the program asks the
 * subscription itself for messages: from then on they are in a stream of its own, and what waits for it moves over.
 */
export class Subscription {
  stream = new Stream();
  /** Its messages go to its own stream, and not to that of the client. */
  isApart = false;
  /** The daemon has not agreed to it yet. */
  isPending = true;
  isClosed = false;
  /** @type {Set<Callback>} */
  #callbacks = new Set();
  #isCalling = false;
  #busy = 0;
  #client;

  /**
   * @param {string} pattern
   * @param {Client} client
   * @param {Callback} [callback]
   */
  constructor(pattern, client, callback) {
    this.pattern = pattern;
    this.#client = client;
    if (callback) {
      this.isApart = true;
      this.#callbacks.add(callback);
      this.#call();
    }
  }

  /** How many messages wait for the callbacks, with the one that they are called with, or in its own stream. */
  get pending() {
    return this.stream.messages.length + this.#busy;
  }

  /**
   * Has another function called with each message, one message at a time: the next one waits for its promise.
   * @param {"message"} _event
   * @param {Callback} callback
   */
  on(_event, callback) {
    this.#callbacks.add(callback);
    this.#part();
    this.#call();
    return this;
  }

  /**
   * @param {"message"} _event
   * @param {Callback} callback
   */
  off(_event, callback) {
    this.#callbacks.delete(callback);
    this.stream.wake();
    return this;
  }

  /**
   * The next message, or undefined if none comes in time.
   * @param {Patience} [patience]
   * @returns {Promise<Message | undefined>}
   */
  async receive(patience) {
    if (this.#callbacks.size) throw new InvalidError(`the messages of ${this.pattern} go to its callback`);
    if (this.isClosed) throw new ClosedError("the subscription is closed");
    this.#part();
    return this.#client.next(this.stream, patience);
  }

  /** Ends the subscription at once, even if it fails: what waits for it is dropped. @param {Patience} [patience] */
  async close(patience) {
    if (this.isClosed) return;
    this.end();
    await this.#client.unsubscribed(this, patience);
  }

  /** Nothing comes of it any more. */
  end() {
    this.isClosed = true;
    this.stream.finish(new ClosedError("the subscription is closed"));
  }

  [asyncDispose]() {
    return this.close();
  }

  /** Messages until it or the client is closed. @returns {AsyncGenerator<Message, void, undefined>} */
  async *[Symbol.asyncIterator]() {
    for (;;) {
      let message;
      try {
        message = await this.receive();
      } catch (error) {
        if (error instanceof ClosedError) return;
        throw error;
      }
      if (message) yield message;
    }
  }

  #part() {
    if (!this.isApart && !this.isClosed) this.#client.part(this);
  }

  async #call() {
    if (this.#isCalling) return;
    this.#isCalling = true;
    while (this.#callbacks.size && !this.isClosed && !this.#client.isOver(this.stream)) {
      const message = this.#client.take(this.stream);
      if (message === undefined) {
        await wait(this.stream, Infinity);
        continue;
      }
      this.#busy = 1;
      for (const callback of this.#callbacks) await report(() => callback(message));
      this.#busy = 0;
    }
    this.#isCalling = false;
  }
}
