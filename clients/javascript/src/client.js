/** A connection of this program to the bus, which connects again by itself. */

import { answerOf, rowsOf } from "./answers.js";
import { ask, serving } from "./asking.js";
import { Batch } from "./batch.js";
import { errand } from "./errand.js";
import { ClosedError, InvalidError, TimedOutError } from "./errors.js";
import { questionOf } from "./exchange.js";
import { Notice, report } from "./notices.js";
import { settingsOf } from "./options.js";
import { buildMessage, encoded } from "./protocol.js";
import { replay } from "./replay.js";
import { Request } from "./request.js";
import { Session } from "./session.js";
import { ALL, listen, subscribe, unsubscribe } from "./subscribing.js";
import { asyncDispose, Subscription } from "./subscription.js";
import { now, wait } from "./waiting.js";
import { unwatch, watch } from "./watches.js";

/** @typedef {import("./inbox.js").Stream} Stream */
/** @typedef {import("./link.js").Platform} Platform */
/** @typedef {import("./protocol.js").Message} Message */
/** @typedef {import("./subscription.js").Callback} Callback */
/** @typedef {import("./subscription.js").Patience} Patience */
/** @typedef {import("../bccn.js").Options} Options */
/** @typedef {Uint8Array | string} Payload  text is sent as UTF-8 */
/** @typedef {(request: Request) => Payload | undefined | void | Promise<Payload | undefined | void>} Handler */

export class Client {
  #session;
  #inbox;
  #settings;
  /** @type {Map<string, Set<(notice: Notice) => unknown>>} */
  #listeners = new Map();

  /**
   * Programs call `connect`.
   * @param {Platform} platform
   * @param {Options} options
   */
  constructor(platform, options) {
    const settings = settingsOf(options);
    const { onNotice } = options;
    this.#settings = settings;
    this.#session = new Session(platform, { ...settings, onNotice: (notice) => this.#tell(notice, onNotice) });
    this.#inbox = this.#session.inbox;
  }

  /**
   * @param {Platform} platform
   * @param {Options} options
   */
  static async connect(platform, options) {
    const client = new Client(platform, options);
    await client.#session.open(options.signal);
    return client;
  }

  /** Own src, as others see it; without a connection, the last one. */
  get name() {
    return this.#session.name;
  }

  /** Whether there is a connection to the daemon, as far as known without asking. */
  get isConnected() {
    return this.#session.isConnected;
  }

  /** How many messages the daemon has dropped in all, because this program read too slowly. */
  get lost() {
    return this.#inbox.lost;
  }

  /** Lets go of the connection at once; call `barrier` first to be sure that the daemon has everything. */
  async close() {
    this.#session.close();
  }

  /** Waits for a barrier, if anything was published since the last one, and closes. */
  async [asyncDispose]() {
    try {
      if (!this.#session.over && this.#session.ledger.isUnsettled) await this.barrier();
    } finally {
      await this.close();
    }
  }

  /**
   * Calls a function with each notice of a kind, or with all. Without any, and without `onNotice`, they are warnings of
   * the console.
   * @param {import("./notices.js").NoticeKind | "notice"} kind
   * @param {(notice: Notice) => unknown} listener
   */
  on(kind, listener) {
    this.#listeners.set(kind, (this.#listeners.get(kind) ?? new Set()).add(listener));
    return this;
  }

  /**
   * @param {import("./notices.js").NoticeKind | "notice"} kind
   * @param {(notice: Notice) => unknown} listener
   */
  off(kind, listener) {
    this.#listeners.get(kind)?.delete(listener);
    return this;
  }

  /**
   * @param {Notice} notice
   * @param {((notice: Notice) => unknown) | undefined} onNotice
   */
  #tell(notice, onNotice) {
    const all = [...(this.#listeners.get("notice") ?? []), ...(this.#listeners.get(notice.kind) ?? [])];
    if (onNotice) all.push(onNotice);
    if (!all.length) console.warn(`bccn: ${notice}`);
    for (const each of all) report(() => each(notice));
  }

  // --- to publish ---

  /**
   * Hands one message to the daemon, and waits only while there is no room or no daemon. What the daemon rejects is a
   * notice, and the error of the next barrier.
   * @param {string} channel
   * @param {Payload} payload
   * @param {Patience} [patience]
   */
  async publish(channel, payload, patience) {
    await this.#session.transmit([{ packet: buildMessage(channel, payload), messages: 1 }], patience);
  }

  /**
   * To every listening program of the segment.
   * @param {Payload} payload
   * @param {Patience} [patience]
   */
  async publishAll(payload, patience) {
    await this.publish(ALL, payload, patience);
  }

  /**
   * To the program whose src is `target`, or to all below it.
   * @param {string} target
   * @param {Payload} payload
   * @param {Patience} [patience]
   */
  async publishTo(target, payload, patience) {
    await this.publish(`!${target}`, payload, patience);
  }

  /**
   * Passes on a whole BCCN1 datagram from elsewhere, as it is. Needs the right to bridge.
   * @param {Uint8Array} datagram
   * @param {Patience} [patience]
   */
  async sendDatagram(datagram, patience) {
    const packet = new Uint8Array(encoded(datagram));
    if (!String.fromCharCode(...packet.subarray(0, 4)).startsWith("BCCN")) throw new InvalidError("no BCCN1 datagram");
    await this.#session.transmit([{ packet, messages: 1 }], patience);
  }

  /** What is published with a batch shares packets, if `pack` was agreed. */
  batch() {
    return new Batch(this.#session);
  }

  /**
   * Returns once the daemon has processed everything sent before. Throws the first rejection since the last barrier, or
   * an UnconfirmedError if the connection broke since.
   * @param {Patience} [patience]
   */
  async barrier(patience) {
    await this.#session.ask("ping", undefined, patience);
    this.#session.ledger.settle();
  }

  // --- to receive ---

  /**
   * Returns when the subscription is in force. If it throws, there is none.
   * @param {string} pattern
   * @param {Callback | Patience} [callback]
   * @param {Patience} [patience]
   * @returns {Promise<Subscription>}
   */
  async subscribe(pattern, callback, patience) {
    if (typeof callback !== "function") [callback, patience] = [undefined, callback ?? patience];
    return subscribe(this.#session, new Subscription(pattern, this, callback), patience);
  }

  /**
   * For subscriptions: one is closed.
   * @param {Subscription} subscription
   * @param {Patience} [patience]
   */
  async unsubscribed(subscription, patience) {
    await unsubscribe(this.#session, subscription, patience);
  }

  /**
   * Has messages to all and to this program delivered, to a callback or to the stream of the client. Another call
   * replaces the callback.
   * @param {Callback | Patience} [callback]
   * @param {Patience} [patience]
   */
  async listen(callback, patience) {
    if (typeof callback !== "function") [callback, patience] = [undefined, callback ?? patience];
    await listen(this.#session, new Subscription(ALL, this, callback), patience);
  }

  /**
   * The next message of the client's stream, or undefined if none comes in time. Waits over reconnections.
   * @param {Patience} [patience]
   */
  async receive(patience) {
    this.#inbox.isClaimed = true;
    return this.next(this.#inbox.stream, patience);
  }

  /** Messages of the client's stream, until it is closed. @returns {AsyncGenerator<Message, void, undefined>} */
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

  /**
   * For subscriptions: the next message of a stream.
   * @param {Stream} stream
   * @param {Patience} [patience]
   * @returns {Promise<Message | undefined>}
   */
  async next(stream, { timeout = Infinity, signal } = {}) {
    signal?.throwIfAborted();
    for (const deadline = now() + timeout; ; ) {
      const over = stream.error ?? this.#session.over;
      const message = over instanceof ClosedError ? undefined : this.#inbox.take(stream);
      if (message) return message;
      if (over) throw over;
      if (now() >= deadline) return undefined;
      await wait(stream, deadline, signal);
    }
  }

  /** For subscriptions. @param {Stream} stream */
  take(stream) {
    return this.#inbox.take(stream);
  }

  /** For subscriptions: whether nothing comes any more. @param {Stream} stream */
  isOver(stream) {
    const { over } = this.#session;
    return over instanceof ClosedError || (over !== undefined && !stream.messages.length);
  }

  /** For subscriptions. @param {Subscription} subscription */
  part(subscription) {
    this.#inbox.part(subscription);
  }

  /**
   * What was recorded of the channels, and then, without `to`, what comes: its own credit, and no connection again.
   * @param {string} pattern
   * @param {{from: import("./replay.js").Time, to?: import("./replay.js").Time}} span
   * @param {Patience} [patience]  timeout: for a connection to the daemon
   */
  replay(pattern, span, patience) {
    return replay(this.#session, pattern, span, { ...this.#settings, ...patience });
  }

  // --- to ask and to serve ---

  /**
   * Publishes a request, and returns the first reply. Throws a TimedOutError when none comes in time, and early a
   * NobodyListensError.
   * @param {string} channel
   * @param {Payload} payload
   * @param {Patience & {waitAnyway?: boolean}} [patience]  waitAnyway: for programs without a daemon
   */
  async request(channel, payload, patience) {
    for await (const reply of this.requestMany(channel, payload, { ...patience, count: 1 })) return reply;
    throw new TimedOutError(`no reply on ${channel} in time`);
  }

  /**
   * The replies to a request as they come, at most `count`. It ends without an error when the time is over.
   * @param {string} channel
   * @param {Payload} payload
   * @param {Patience & {count?: number, waitAnyway?: boolean}} [how]
   * @returns {AsyncGenerator<Message, void, undefined>}
   */
  requestMany(channel, payload, how) {
    return ask(this.#session, channel, payload, { ...how, timeout: how?.timeout ?? this.#settings.timeout });
  }

  /**
   * Subscribes, and replies to each request with what the handler returns, or its promise; where that is nothing, the
   * program calls `reply` of the request later. The pattern `!` serves what is asked of all and of this program.
   * At most `concurrency` requests are carried out at a time; the next one waits.
   * @param {string} pattern
   * @param {Handler} handler
   * @param {Patience & {concurrency?: number}} [patience]
   * @returns {Promise<Subscription>}
   */
  async serve(pattern, handler, { concurrency = 1, ...patience } = {}) {
    if (this.#settings.format !== "full") throw new InvalidError('to serve needs the format "full", which shows who asks');
    const serve = serving(this, handler, concurrency, (error) => {
      if (!this.#session.over) this.#session.notify(new Notice("rejected", error.message, 1, error));
    });
    const subscription = new Subscription(pattern, this, serve);
    return (pattern === ALL ? listen : subscribe)(this.#session, subscription, patience);
  }

  /**
   * A message as a request that can be replied to, or undefined if it is none. Needs the format `full`.
   * @param {Message} message
   */
  asRequest(message) {
    const found = questionOf(message);
    return found && new Request(message, found, this);
  }

  // --- to watch ---

  /**
   * Calls a function with the pattern and whether anybody else listens to what matches it, here or on another host: as
   * soon as that is known, and at each change, over connections, too. Another call replaces the callback.
   * @param {string} pattern
   * @param {import("./watches.js").News} callback
   * @param {Patience} [patience]
   */
  async watch(pattern, callback, patience) {
    await watch(this.#session, pattern, callback, patience);
  }

  /** Ends that at once, even if it fails. @param {string} pattern @param {Patience} [patience] */
  async unwatch(pattern, patience) {
    await unwatch(this.#session, pattern, patience);
  }

  // --- the daemon ---

  /**
   * Takes another src, and keeps it over reconnections.
   * @param {string} name
   * @param {Patience} [patience]
   */
  async setName(name, patience) {
    const granted = (/** @type {string} */ value) => {
      this.#session.name = value;
      this.#session.wishes.set("name", name);
    };
    await this.#session.ask("name", name, { ...patience, granted });
  }

  /**
   * Has the daemon publish every so many milliseconds (whole seconds) that this program is there, with its state. 0 ends
   * that.
   * @param {number} every
   * @param {string} [text]
   * @param {Patience} [patience]
   */
  async heartbeat(every, text = "", patience = undefined) {
    if (!(every >= 0) || every % 1000) throw new InvalidError(`a heartbeat every ${every} ms: must be whole seconds`);
    const value = every ? `${every / 1000}${text && ` ${text}`}` : "off";
    const granted = () => {
      if (every) this.#session.wishes.set("heartbeat", value);
      else this.#session.wishes.delete("heartbeat");
    };
    await this.#session.ask("heartbeat", value, { ...patience, granted });
  }

  /**
   * Makes any control request, once; returns the value of its answer.
   * @param {string} key
   * @param {string} [value]
   * @param {Patience} [patience]
   */
  async control(key, value, patience) {
    return this.#session.ask(key, value, patience);
  }

  /** What the daemon says of itself. @param {Patience} [patience] */
  async status(patience) {
    return answerOf(this.#session, "status", undefined, patience);
  }

  /** The programs on this bus. @param {Patience} [patience] */
  async clients(patience) {
    return rowsOf(this.#session, "clients", patience);
  }

  /** The senders heard from the segment. @param {Patience} [patience] */
  async sources(patience) {
    return rowsOf(this.#session, "sources", patience);
  }

  /**
   * What the door finds wrong with the bus of its host, `without` what clients of these names have to do with it.
   * @param {Patience & {without?: string[]}} [patience]
   */
  async doctor({ without = [], ...patience } = {}) {
    const how = { timeout: this.#settings.timeout, ...patience };
    return JSON.parse(await errand(this.#session, ["doctor", ...without].join(" "), how));
  }
}
