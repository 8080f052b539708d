/**
 * Requests of this program that wait for replies (clients/PROTOCOL.md, "Request and reply").
 *
 * 1. Tokens cannot be guessed and belong to one client: a message that begins like ours is a reply, perhaps a late one.
 * 2. A request is published once. The other hosts are asked for listeners several times, since datagrams get lost.
 * 3. Replies beyond those wanted, and replies that nobody waits for any more, are dropped.
 */

import { Stream } from "./inbox.js";
import { decoded, encoded } from "./protocol.js";

/** @typedef {import("./protocol.js").Message} Message */

export const QUESTIONS = 3;
/** Milliseconds; a reply that comes sooner saves the segment a question. */
export const ASK_AFTER = 20;
/** Milliseconds between questions; a daemon answers in a fraction of that. */
export const ASK_EVERY = 100;
// Bytes; daemons do not answer a question with a longer token.
const TOKEN_LIMIT = 128;
const LF = 0x0a;
// More replies that wait for one request are a flood, and are dropped.
const REPLIES_LIMIT = 65536;

/** One request of ours and what has come of it. */
export class Exchange {
  replies = new Stream();
  /** Somebody listens, or that cannot be found out. */
  isSettled = false;
  /** It is on its way to the daemon, which may reject it. */
  isOnItsWay = false;
  /** What the daemon has against it. @type {Error | undefined} */
  rejection;

  /**
   * @param {string} token
   * @param {string} channel
   */
  constructor(token, channel) {
    this.token = token;
    this.channel = channel;
  }
}

/** The requests of one client that are under way. */
export class Exchanges {
  /** @type {Map<string, Exchange>} */
  #all = new Map();
  /** The beginning of each token. */
  #prefix;
  #begin;
  #count = 0;
  #put;

  /**
   * @param {Uint8Array} random
   * @param {(stream: Stream, message: Message) => void} put
   */
  constructor(random, put) {
    this.#prefix = `${[...random].map((byte) => byte.toString(16).padStart(2, "0")).join("")}.`;
    this.#begin = encoded(this.#prefix);
    this.#put = put;
  }

  get size() {
    return this.#all.size;
  }

  /** @param {string} channel */
  begin(channel) {
    const exchange = new Exchange(`${this.#prefix}${++this.#count}`, channel);
    this.#all.set(exchange.token, exchange);
    return exchange;
  }

  /** @param {Exchange} exchange */
  end(exchange) {
    this.#all.delete(exchange.token);
  }

  /** Have every request look at how things stand. */
  wake() {
    for (const exchange of this.#all.values()) exchange.replies.wake();
  }

  /**
   * Whether a message is a reply to a request of this client, in time or late; its exchange has it then. One on the
   * channel of the request is none: a request to all comes back to its sender. With a "?" behind the token, a daemon
   * says that it has listeners.
   * @param {Message} message
   */
  take(message) {
    const { payload } = message;
    if (message.isRejected || !this.#begin.every((byte, at) => payload[at] === byte)) return false;
    const end = payload.indexOf(LF);
    const token = decoded(payload.subarray(0, end < 0 ? payload.length : end));
    const exchange = this.#all.get(token.endsWith("?") ? token.slice(0, -1) : token);
    if (exchange === undefined) return true;
    if (message.channel === exchange.channel) return false;
    exchange.isSettled = true;
    if (token === exchange.token && exchange.replies.messages.length < REPLIES_LIMIT) {
      this.#put(exchange.replies, message.with({ payload: payload.subarray(end < 0 ? payload.length : end + 1), lost: 0 }));
    } else {
      exchange.replies.wake();
    }
    return true;
  }

  /**
   * Whether the daemon rejected a request of this client with this.
   * @param {import("./errors.js").RejectedError} error
   */
  blame(error) {
    for (const exchange of this.#all.values()) {
      if (exchange.isOnItsWay && error.text.startsWith(`MSG ${exchange.channel}:`)) {
        exchange.rejection = error;
        return true;
      }
    }
    return false;
  }
}

/**
 * The token and the question of a message, if it is a request that can be replied to: only the format `full` says who
 * asks.
 * @param {Message} message
 */
export function questionOf({ src, payload }) {
  const end = payload.indexOf(LF);
  if (end < 1 || end > TOKEN_LIMIT || !src || src === "?" || src.includes("*")) return undefined;
  return { token: payload.subarray(0, end + 1), question: payload.subarray(end + 1) };
}
