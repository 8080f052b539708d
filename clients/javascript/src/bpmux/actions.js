/**
 * What this side does to its channels and requests: each action, and what follows once its bytes went out.
 *
 * An action on what the peer has just ended does nothing, as nobody can know that in time. An action that never made
 * sense (a message into a stream of ours) is a RangeError.
 */

import * as chunks from "./chunks.js";
import { after, Channel, Request, Tables } from "./entities.js";
import { BpmuxError } from "./errors.js";
import { ITEM_BYTES } from "./limits.js";
import { Outgoing } from "./outgoing.js";
import { Unfinished } from "./payloads.js";

/** @typedef {import("./limits.js").Limits} Limits */
/** @typedef {import("./endpoint.js").Event} Event */

/** What a peer that speaks no text is told. */
const NOTHING = new Uint8Array(0);

export class Actions {
  tables = new Tables();
  unfinished;
  outgoing;
  /** What came of them, in order. @type {Event[]} */
  events = [];
  /** The Close and the Cancel of the top level that this side has sent, and those of the peer. @type {Set<number>} */
  said = new Set();
  /** @type {Set<number>} */
  heard = new Set();
  isFinished = false;

  /** @param {Limits} limits */
  constructor(limits) {
    this.limits = limits;
    this.unfinished = new Unfinished(limits);
    this.outgoing = new Outgoing(this.tables.top.account, limits.replies, (entity, kind) => this.#sent(entity, kind));
    this.setWindow(this.tables.top, limits.reserve);
  }

  // --- to open and to ask ---

  /**
   * @param {number} kind  SINK, STREAM or DUPLEX
   * @param {Uint8Array} payload
   * @param {number} window
   */
  open(kind, payload, window) {
    this.#checkSize(payload);
    if (this.tables.ours.size >= this.limits.channels) return null;
    const channel = this.tables.newChannel(kind);
    this.outgoing.add(channel.lane, kind, payload);
    if (window) this.setWindow(channel, window);
    return channel;
  }

  /** @param {Uint8Array} payload */
  ask(payload) {
    this.#checkSize(payload);
    if (this.tables.asked.size >= this.limits.requests) return null;
    const request = this.tables.newRequest();
    this.outgoing.add(request.lane, chunks.REQUEST, payload);
    return request;
  }

  /**
   * @param {Request} request
   * @param {Uint8Array} payload
   */
  answer(request, payload) {
    if (request.ours) throw new RangeError("a request of our own is answered by the peer");
    this.#checkSize(payload);
    if (request.state !== "open" || request.answered) return false;
    request.answered = true;
    this.outgoing.add(request.lane, chunks.RESPONSE, payload);
    return true;
  }

  // --- messages and credit ---

  /**
   * @param {Channel} channel
   * @param {Uint8Array} payload
   */
  send(channel, payload) {
    this.#checkSize(payload);
    if (channel.sending === "absent") throw new RangeError(`${channel} is not to be written`);
    if (channel.sending !== "open" || (channel.id === chunks.TOP && this.heard.has(chunks.CANCEL))) return false;
    if (channel.lane.size && channel.lane.size + payload.length + ITEM_BYTES > this.limits.queue) {
      channel.isFull = true;
      return false;
    }
    this.outgoing.add(channel.lane, channel.ours ? chunks.MESSAGE : chunks.MESSAGE_PEER, payload);
    return true;
  }

  /**
   * @param {Channel} channel
   * @param {number} amount
   */
  grant(channel, amount) {
    if (channel.receiving === "absent") throw new RangeError(`${channel} is not to be read`);
    if (!(amount > 0 && channel.credit + channel.pending + amount <= Number.MAX_SAFE_INTEGER)) {
      throw new RangeError(`a grant of ${amount}`);
    }
    if (!channel.isOpen) channel.pending += amount;
    else if (channel.receiving === "open" || channel.id === chunks.TOP) this.outgoing.grant(channel, amount);
  }

  /**
   * @param {Channel} channel
   * @param {number} window
   */
  setWindow(channel, window) {
    channel.window = window;
    this.topUp(channel);
  }

  /**
   * @param {Channel} channel
   * @param {number} size
   */
  consumed(channel, size) {
    channel.held = Math.max(0, channel.held - size);
    this.topUp(channel);
  }

  /**
   * Grant anew what is neither the peer's nor held here, once it is half of the window.
   * @param {Channel} channel
   */
  topUp(channel) {
    const owed = channel.window - channel.held - channel.credit - channel.pending;
    const mayBe = channel.receiving === "open" || channel.id === chunks.TOP;
    if (owed > 0 && 2 * owed >= channel.window && mayBe) this.grant(channel, owed);
  }

  // --- to end ---

  /**
   * @param {Channel | Request} entity
   * @param {Uint8Array} payload
   * @param {boolean} [atOnce]
   */
  close(entity, payload, atOnce = false) {
    this.#checkSize(payload);
    if (entity instanceof Request) {
      if (entity.ours) throw new RangeError("a request of our own is cancelled, not closed");
      if (entity.state === "open" && (atOnce || !entity.answered)) {
        entity.state = after(entity.state, "leave");
        this.outgoing.clear(entity.lane);
        this.outgoing.add(entity.lane, chunks.CLOSE_RESPONSE, payload);
      }
      return;
    }
    if (entity.sending === "absent") throw new RangeError(`${entity} is not to be written`);
    if (entity.sending === "open") {
      entity.sending = after(entity.sending, "leave");
      if (atOnce) this.outgoing.clear(entity.lane);
      this.outgoing.add(entity.lane, entity.ours ? chunks.CLOSE : chunks.CLOSE_PEER, payload);
    }
  }

  /**
   * @param {Channel | Request} entity
   * @param {Uint8Array} payload
   */
  cancel(entity, payload) {
    this.#checkSize(payload);
    if (entity instanceof Request) {
      if (!entity.ours) throw new RangeError("a request of the peer is closed, not cancelled");
      if (entity.state === "open") {
        entity.state = after(entity.state, "leave");
        this.outgoing.add(entity.lane, chunks.CANCEL_REQUEST, payload);
      }
      return;
    }
    if (entity.receiving === "absent") throw new RangeError(`${entity} is not to be read`);
    if (entity.receiving === "open") {
      entity.receiving = after(entity.receiving, "leave");
      this.outgoing.add(entity.cancelling, entity.ours ? chunks.CANCEL : chunks.CANCEL_PEER, payload);
    }
  }

  /**
   * End it on all sides, for a limit that the peer went beyond.
   * @param {Channel | Request} entity
   * @param {Uint8Array} reason
   */
  refuse(entity, reason) {
    this.events.push({ type: "refused", of: entity, payload: reason });
    if (!entity.isRefused) {
      entity.isRefused = true;
      this.tables.refused++;
    }
    if (this.tables.refused > this.limits.refused) {
      throw new BpmuxError("limit", "the peer goes beyond limits and does not read that it did");
    }
    if (entity instanceof Request) {
      if (entity.ours) this.cancel(entity, reason);
      else this.close(entity, reason);
      return;
    }
    if (entity.sending !== "absent" && entity.id !== chunks.TOP) this.close(entity, reason, true);
    if (entity.receiving !== "absent") this.cancel(entity, reason);
  }

  /**
   * If nobody has anything more to say about it, its id is free.
   * @param {Channel | Request} entity
   */
  over(entity) {
    if (entity.isOver) {
      this.tables.remove(entity);
      this.events.push({ type: "ended", of: entity, payload: NOTHING });
    }
  }

  /** Whether both sides have said all of the top level: the connection is finished then. */
  finish() {
    if (this.said.size === 2 && this.heard.size === 2) {
      this.drop();
      this.events.push({ type: "finished", of: this.tables.top, payload: NOTHING });
    }
  }

  /** Nothing is said or heard any more. */
  drop() {
    this.isFinished = true;
    this.outgoing.stop();
  }

  // --- what went out ---

  /**
   * @param {Channel | Request} entity
   * @param {number} kind
   */
  #sent(entity, kind) {
    if (entity instanceof Channel) {
      this.#channelSent(entity, kind);
    } else if (kind === chunks.REQUEST) {
      entity.isOpen = true;
    } else if (kind === chunks.RESPONSE) {
      entity.state = "over";
      this.tables.remove(entity);
    } else {
      entity.state = after(entity.state, "sent");
    }
  }

  /**
   * @param {Channel} channel
   * @param {number} kind
   */
  #channelSent(channel, kind) {
    if (kind === chunks.MESSAGE || kind === chunks.MESSAGE_PEER) {
      if (channel.isFull && 2 * channel.lane.size <= this.limits.queue) {
        channel.isFull = false;
        this.events.push({ type: "writable", of: channel, payload: NOTHING });
      }
    } else if (kind >= chunks.SINK) {
      channel.isOpen = true;
      const amount = channel.pending;
      channel.pending = 0;
      if (amount) this.grant(channel, amount);
      this.outgoing.start(channel.cancelling);
    } else if (channel.id === chunks.TOP) {
      this.said.add(kind);
      this.finish();
    } else if (kind === chunks.CLOSE || kind === chunks.CLOSE_PEER) {
      channel.sending = after(channel.sending, "sent");
    } else {
      channel.receiving = after(channel.receiving, "sent");
    }
  }

  /** @param {Uint8Array} payload */
  #checkSize(payload) {
    if (payload.length > this.limits.payload) {
      throw new RangeError(`a payload of ${payload.length} bytes, at most ${this.limits.payload}`);
    }
  }
}
