/**
 * One side of a connection of bpmux/rel: bytes in, events out, and what is to be sent (clients/BPMUX.md).
 *
 *     const endpoint = new Endpoint(now);
 *     carrier.write(endpoint.dataToSend());                     its credit for the top level goes first
 *     for (const event of endpoint.receive(bytes, now)) ...     and after each call: send what there is now to send
 *     for (const event of endpoint.expire(now)) ...             at endpoint.deadline
 *
 * - It has no clock, no socket and no promise. Both sides are the same. Time is in milliseconds and does not go back.
 * - Sending never waits: what the peer has no credit for is queued, up to a limit, and goes out as credit comes.
 * - After a BpmuxError the connection is dropped: there is nothing to send, and whatever comes is passed over.
 *   `events` still gives what came before the fault.
 * - The endpoint keeps the top level at `Limits.reserve` of credit by itself, acknowledges and answers pings.
 * - Payloads of events are views of what was received: whoever keeps one makes a copy.
 * - While `replies` is large the peer does not read: then do not read from it either.
 */

import { Actions } from "./actions.js";
import { DUPLEX, PING, SINK, STREAM, TOP } from "./chunks.js";
import { BpmuxError } from "./errors.js";
import { Incoming } from "./incoming.js";
import { Limits } from "./limits.js";

/** @typedef {import("./entities.js").Channel} Channel */
/** @typedef {import("./entities.js").Request} Request */

/**
 * What an endpoint reports. An event is about a channel or a request; the top level is a channel as well.
 *
 *     opened     the peer opened a channel             message    a whole message
 *     requested  the peer waits for a response         responded  the response, with which a request of ours is over
 *     cancelled  the peer takes no more of it          closed     the peer sends no more of it
 *     ended      nobody says more about it             writable   `send` had taken no more, and does again
 *     refused    the peer went beyond a limit and was told the reason
 *     silent     nothing came for so long that the connection is to be dropped
 *     finished   both sides have closed and cancelled the top level
 *
 * @typedef {{type: "opened" | "message" | "writable" | "silent" | "finished", of: Channel, payload: Uint8Array}
 *   | {type: "requested" | "responded", of: Request, payload: Uint8Array}
 *   | {type: "cancelled" | "closed" | "ended" | "refused", of: Channel | Request, payload: Uint8Array}} Event
 */

/** Milliseconds without a byte of the peer, after which it is asked whether it is there. */
const IDLE = 10_000;
/** So many times. */
const MISSED_LIMIT = 3;

const NOTHING = new Uint8Array(0);

export class Endpoint {
  #actions;
  #incoming;
  #missed = 0;
  #due;

  /**
   * @param {number} now
   * @param {Partial<Limits>} [limits]
   */
  constructor(now, limits) {
    this.#actions = new Actions(new Limits(limits));
    this.#incoming = new Incoming(this.#actions);
    this.#due = now + IDLE;
  }

  // --- bytes, time and events ---

  /**
   * What these bytes bring, and whatever else happened since the last call. Throws a BpmuxError.
   * @param {Uint8Array} data
   * @param {number} now
   */
  receive(data, now) {
    if (data.length) {
      this.#missed = 0;
      this.#due = now + IDLE;
    }
    if (!this.#actions.isFinished) {
      try {
        this.#incoming.receive(data);
      } catch (error) {
        if (error instanceof BpmuxError) this.#actions.drop();
        throw error;
      }
    }
    return this.events();
  }

  /**
   * Ask for a sign of life if it is due, or report that none came.
   * @param {number} now
   */
  expire(now) {
    if (this.#due <= now) {
      this.#due = now + IDLE;
      if (this.#missed >= MISSED_LIMIT) {
        this.#actions.events.push({ type: "silent", of: this.top, payload: NOTHING });
      } else {
        this.#missed++;
        this.#actions.outgoing.reply(PING, TOP);
      }
    }
    return this.events();
  }

  /** When to call `expire` next, at the latest. */
  get deadline() {
    return this.#due;
  }

  /** What happened outside of `receive` and `expire`: `writable`, and `finished` with the last bytes. */
  events() {
    const { events } = this.#actions;
    if (events.length) this.#actions.events = [];
    return events;
  }

  /**
   * What may be sent now, about `limit` bytes of it; call again once that is gone, until it is empty.
   * @param {number} [limit]
   */
  dataToSend(limit = 64 * 1024) {
    return this.#actions.outgoing.take(limit);
  }

  get hasDataToSend() {
    return this.#actions.outgoing.hasMore;
  }

  // --- channels ---

  /** The channel that is always open. */
  get top() {
    return this.#actions.tables.top;
  }

  /**
   * A channel to send on. null: as many as `Limits.channels` are open already.
   * @param {Uint8Array} payload
   */
  openSink(payload) {
    return this.#actions.open(SINK, payload, 0);
  }

  /**
   * A channel to receive on. With a window the peer has that much credit at once; see `setWindow`.
   * @param {Uint8Array} payload
   * @param {number} [window]
   */
  openStream(payload, window = 0) {
    return this.#actions.open(STREAM, payload, window);
  }

  /**
   * @param {Uint8Array} payload
   * @param {number} [window]
   */
  openDuplex(payload, window = 0) {
    return this.#actions.open(DUPLEX, payload, window);
  }

  /**
   * false if it is not taken: the peer takes no more, or the queue is full and `writable` will come.
   * @param {Channel} channel
   * @param {Uint8Array} payload
   */
  send(channel, payload) {
    return this.#actions.send(channel, payload);
  }

  /**
   * Let the peer send so many bytes more. Not together with a window.
   * @param {Channel} channel
   * @param {number} amount
   */
  grant(channel, amount) {
    this.#actions.grant(channel, amount);
  }

  /**
   * Keep the peer's credit at `window` bytes, less what of its messages is not `consumed`. A message that comes in
   * several chunks is granted anew as it comes, so any window lets any message pass.
   * @param {Channel} channel
   * @param {number} window
   */
  setWindow(channel, window) {
    this.#actions.setWindow(channel, window);
  }

  /**
   * So many bytes of messages are dealt with; for channels with a window.
   * @param {Channel} channel
   * @param {number} size
   */
  consumed(channel, size) {
    this.#actions.consumed(channel, size);
  }

  /**
   * The program holds so many bytes of messages in all: what a window grants is less by them.
   * @param {Channel} channel
   * @param {number} size
   */
  hold(channel, size) {
    channel.held = size;
    this.#actions.topUp(channel);
  }

  // --- requests ---

  /**
   * null: as many as `Limits.requests` wait already.
   * @param {Uint8Array} payload
   */
  request(payload) {
    return this.#actions.ask(payload);
  }

  /**
   * false: it is answered or ended already.
   * @param {Request} request
   * @param {Uint8Array} payload
   */
  respond(request, payload) {
    return this.#actions.answer(request, payload);
  }

  // --- to end ---

  /**
   * Take no more: of a channel that we receive on, or of a request of ours.
   * @param {Channel | Request} entity
   * @param {Uint8Array} [payload]
   */
  cancel(entity, payload = NOTHING) {
    this.#actions.cancel(entity, payload);
  }

  /**
   * Send no more: on a channel once what is queued has gone, or `atOnce`; to a request of the peer.
   * @param {Channel | Request} entity
   * @param {Uint8Array} [payload]
   * @param {boolean} [atOnce]
   */
  close(entity, payload = NOTHING, atOnce = false) {
    this.#actions.close(entity, payload, atOnce);
  }

  // --- what it costs ---

  /** How many chunks have come. */
  get chunks() {
    return this.#incoming.count;
  }

  /** How many of them moved nothing: without a byte, grants of next to nothing, heartbeats. */
  get chatter() {
    return this.#incoming.chatter;
  }

  /** Bytes of acknowledgements, grants and pongs that were not taken yet. */
  get replies() {
    return this.#actions.outgoing.replies;
  }

  /** Bytes of payloads that wait for credit or for the carrier. */
  get queued() {
    return this.#actions.outgoing.waiting;
  }

  /** Bytes of payloads that have begun and not ended. */
  get held() {
    return this.#actions.unfinished.held;
  }
}
