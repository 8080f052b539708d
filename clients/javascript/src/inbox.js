/**
 * What a program listens to, and the messages that wait for it.
 *
 * The daemon does not say which patterns a message matched: to find who gets it the client matches it again. A message
 * goes once to each subscription that has a stream or a callback of its own, and once to the stream of the client if
 * another one matches, or if none does. Nothing is lost here: what waits is not granted anew, so the daemon waits.
 */

import { Fifo } from "./fifo.js";
import { Notice } from "./notices.js";
import { matches } from "./patterns.js";
import { Pending } from "./waiting.js";

/** @typedef {import("./protocol.js").Message} Message */
/** @typedef {import("./subscription.js").Subscription} Subscription */

// Bytes that a message costs besides its payload, about.
const MESSAGE_COST = 256;
// Channels of which it is remembered who gets their messages.
const ROUTES_LIMIT = 1024;
// Bytes of the client's stream that may wait for a program that has never asked for them.
const UNCLAIMED_LIMIT = 64 * 1024;

/** @param {Message} message */
const costOf = (message) => Math.max(message.payload.length, message.datagram?.length ?? 0) + MESSAGE_COST;

/** Messages until they are received: those of the client, of a subscription, or replies to a request. */
export class Stream extends Pending {
  /** @type {Fifo<Message>} */
  messages = new Fifo();
  /** Bytes that wait. */
  size = 0;
  /** Ever. */
  came = 0;
  /** Messages that the daemon dropped since the last one. */
  lost = 0;
}

export class Inbox {
  stream = new Stream();
  /** Those that the daemon has agreed to or has been asked for, in their order. @type {Set<Subscription>} */
  subscriptions = new Set();
  /** Gets what is for all and for this program. @type {Subscription | undefined} */
  listener;
  /** Those that were given up, until the daemon has answered their UNSUB. @type {Set<Subscription>} */
  withdrawn = new Set();
  /** Whether the daemon shows all of the segment. */
  isTap = false;
  /** Whether the program has asked for messages of the client's stream. */
  isClaimed = false;
  /** Bytes in all streams. */
  waiting = 0;
  /** Messages that the daemon has dropped, ever. */
  lost = 0;
  /** @type {Map<string, Stream[]>} */
  #routes = new Map();
  #separator;
  #changed;
  #notify;

  /**
   * @param {"/" | "."} separator
   * @param {() => void} changed  more or less waits than before
   * @param {(notice: Notice) => void} notify
   */
  constructor(separator, changed, notify) {
    this.#separator = separator;
    this.#changed = changed;
    this.#notify = notify;
  }

  // --- streams ---

  /**
   * @param {Stream} stream
   * @param {Message} message
   */
  put(stream, message) {
    stream.messages.push(stream.lost ? message.with({ lost: stream.lost }) : message);
    stream.lost = 0;
    stream.came++;
    this.#charge(stream, costOf(message));
    stream.wake();
  }

  /** @param {Stream} stream */
  take(stream) {
    const message = stream.messages.shift();
    if (message) {
      this.#charge(stream, -costOf(message));
      this.#changed();
    }
    return message;
  }

  /**
   * @param {Stream} stream
   * @param {number} bytes
   */
  #charge(stream, bytes) {
    stream.size += bytes;
    this.waiting += bytes;
  }

  /**
   * Keeps those messages of a stream for which `keep` says so; a loss before one that goes is one before the next.
   * @param {Stream} stream
   * @param {(message: Message, number: number) => boolean} keep  `number`: of all that have ever come
   */
  sift(stream, keep) {
    const all = stream.messages;
    stream.messages = new Fifo();
    let number = stream.came - all.length;
    let lost = 0;
    for (const message of all) {
      number++;
      if (keep(message, number)) {
        stream.messages.push(lost ? message.with({ lost: message.lost + lost }) : message);
        lost = 0;
      } else {
        lost += message.lost;
        this.#charge(stream, -costOf(message));
      }
    }
    stream.lost += lost;
    this.#changed();
  }

  /** @param {Stream} stream */
  discard(stream) {
    const count = stream.messages.length;
    this.sift(stream, () => false);
    return count;
  }

  /**
   * The daemon dropped so many: every stream reports a gap before its next message.
   * @param {number} count
   */
  miss(count) {
    this.lost += count;
    const own = [...this.subscriptions, ...(this.listener ? [this.listener] : [])].filter((each) => each.isApart);
    for (const stream of [this.stream, ...own.map((each) => each.stream)]) stream.lost += count;
  }

  // --- who gets a message ---

  /** @param {Message} message */
  deliver(message) {
    if (message.isRejected) {
      this.put(this.stream, message); // nobody subscribes to what was not delivered
      return;
    }
    if (!this.isWanted(message.channel)) return;
    const route = this.#routes.get(message.channel) ?? this.#route(message.channel);
    for (const stream of route) this.put(stream, message);
    if (!this.isClaimed && this.stream.size > UNCLAIMED_LIMIT) this.#dropUnclaimed();
  }

  /**
   * Whether a message came for more than replies alone, and what was withdrawn.
   * @param {string} channel
   */
  isWanted(channel) {
    if (this.isTap) return true;
    if (channel.startsWith("!")) return this.listener !== undefined || this.subscriptions.size > 0;
    if (!this.withdrawn.size) return true;
    return !this.isStray(channel) || ![...this.withdrawn].some((each) => this.matches(each.pattern, channel));
  }

  /**
   * Whether a message came for no subscription, nor as one to this program or by a tap.
   * @param {string} channel
   */
  isStray(channel) {
    if (this.isTap || channel.startsWith("!")) return false;
    return ![...this.subscriptions].some((each) => this.matches(each.pattern, channel));
  }

  /** @param {string} channel */
  #route(channel) {
    /** @type {Stream[]} */
    const route = [];
    const wanting = channel.startsWith("!")
      ? this.listener ? [this.listener] : []
      : [...this.subscriptions].filter((each) => this.matches(each.pattern, channel));
    for (const each of wanting) if (each.isApart) route.push(each.stream);
    if (route.length < wanting.length || !wanting.length) route.push(this.stream);
    if (this.#routes.size >= ROUTES_LIMIT) this.#routes.clear();
    this.#routes.set(channel, route);
    return route;
  }

  /**
   * @param {string} pattern
   * @param {string} channel
   */
  matches(pattern, channel) {
    return matches(pattern, channel, this.#separator);
  }

  // --- what is wanted ---

  /** What is wanted has changed. */
  reroute() {
    this.#routes.clear();
  }

  /** @param {Subscription} subscription */
  add(subscription) {
    this.subscriptions.add(subscription);
    this.reroute();
  }

  /** @param {Subscription} subscription */
  remove(subscription) {
    this.subscriptions.delete(subscription);
    if (this.listener === subscription) this.listener = undefined;
    this.reroute();
    this.discard(subscription.stream);
  }

  /**
   * Gives a subscription a stream of its own, with what waits for it in that of the client.
   * @param {Subscription} subscription
   */
  part(subscription) {
    subscription.isApart = true;
    this.reroute();
    const { stream, pattern } = subscription;
    const since = this.stream.lost;
    this.sift(this.stream, (message) => {
      stream.lost += message.lost;
      if (message.isRejected || !this.matches(pattern, message.channel)) return true;
      this.put(stream, message);
      return this.#route(message.channel).includes(this.stream);
    });
    stream.lost += since;
  }

  /** Messages that this program never receives must not stop those of its callbacks and other streams. */
  #dropUnclaimed() {
    const isFilled = [...this.subscriptions].some((each) => !each.isApart) || (this.listener && !this.listener.isApart);
    if (isFilled || this.isTap) return;
    const count = this.discard(this.stream);
    this.#notify(new Notice("unclaimed", `${count} messages dropped that no callback takes, and nobody receives`, count));
  }
}
