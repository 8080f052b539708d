/** What a payload does once it is whole. */

import * as chunks from "./chunks.js";
import { after, Channel, isHeard, Request } from "./entities.js";
import { BpmuxError } from "./errors.js";

/** @typedef {import("./actions.js").Actions} Actions */

export const TOO_LONG = new TextEncoder().encode("limit: a payload is too long");
const TOO_MANY = new TextEncoder().encode("limit: too many are open");

export class Wholes {
  /** Cancels of requests that are not there. */
  chatter = 0;
  #actions;

  /** @param {Actions} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {Uint8Array} payload
   * @param {boolean} isKept  otherwise it was too long
   */
  take(kind, id, payload, isKept) {
    switch (kind) {
      case chunks.MESSAGE:
      case chunks.MESSAGE_PEER:
        return this.#message(this.channel(id, kind === chunks.MESSAGE_PEER), payload, isKept);
      case chunks.SINK:
      case chunks.STREAM:
      case chunks.DUPLEX:
        return this.#opened(kind, id, payload, isKept);
      case chunks.REQUEST:
        return this.#requested(id, payload, isKept);
      case chunks.RESPONSE:
        return this.#responded(this.asked(kind, id), payload);
      case chunks.CLOSE_RESPONSE:
        return this.#responseClosed(this.asked(kind, id), payload);
      case chunks.CANCEL_REQUEST:
        return this.#requestCancelled(id, payload);
      case chunks.CANCEL:
      case chunks.CANCEL_PEER:
        return this.#cancelled(kind, id, payload);
      default:
        return this.#closed(kind, id, payload);
    }
  }

  /**
   * A channel that is open on both sides. Throws if there is none.
   * @param {number} id
   * @param {boolean} ours
   */
  channel(id, ours) {
    const { tables } = this.#actions;
    if (id === chunks.TOP) return tables.top;
    const channel = (ours ? tables.ours : tables.theirs).get(id);
    if (!channel?.isOpen) throw new BpmuxError("state", `there is no channel ${id}`);
    return channel;
  }

  /**
   * A request of ours that may still be answered or closed. Throws if there is none.
   * @param {number} kind
   * @param {number} id
   */
  asked(kind, id) {
    const request = this.#actions.tables.asked.get(id);
    if (!request?.isOpen || !isHeard(request.state) || request.answered) {
      throw new BpmuxError("state", `${chunks.NAMES[kind]} of ${id}, which is not there or has ended`);
    }
    return request;
  }

  /**
   * @param {Channel} channel
   * @param {Uint8Array} payload
   * @param {boolean} isKept
   */
  #message(channel, payload, isKept) {
    if (channel.receiving !== "open" || !isKept) return;
    if (channel.window && channel.id !== chunks.TOP) channel.held += payload.length;
    this.#actions.events.push({ type: "message", of: channel, payload });
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {Uint8Array} payload
   * @param {boolean} isKept
   */
  #opened(kind, id, payload, isKept) {
    const actions = this.#actions;
    const channel = new Channel(id, kind, false);
    channel.isOpen = true;
    actions.tables.theirs.set(id, channel);
    if (isKept && actions.tables.theirs.size <= actions.limits.channels) {
      actions.events.push({ type: "opened", of: channel, payload });
    } else {
      actions.refuse(channel, isKept ? TOO_MANY : TOO_LONG);
    }
  }

  /**
   * @param {number} id
   * @param {Uint8Array} payload
   * @param {boolean} isKept
   */
  #requested(id, payload, isKept) {
    const actions = this.#actions;
    const request = new Request(id, false);
    request.isOpen = true;
    actions.tables.requests.set(id, request);
    if (isKept && actions.tables.requests.size <= actions.limits.requests) {
      actions.events.push({ type: "requested", of: request, payload });
    } else {
      actions.refuse(request, isKept ? TOO_MANY : TOO_LONG);
    }
  }

  /**
   * @param {Request} request
   * @param {Uint8Array} payload
   */
  #responded(request, payload) {
    if (request.state !== "open") {
      this.#met(request);
      return;
    }
    request.state = after(request.state, "peer");
    this.#actions.tables.remove(request);
    this.#actions.events.push({ type: "responded", of: request, payload });
  }

  /**
   * @param {Request} request
   * @param {Uint8Array} payload
   */
  #responseClosed(request, payload) {
    const { events, outgoing, unfinished } = this.#actions;
    unfinished.end(chunks.RESPONSE, request.id);
    outgoing.reply(chunks.ACK_CLOSE_RESPONSE, request.id);
    if (request.state === "open") events.push({ type: "closed", of: request, payload });
    this.#met(request);
  }

  /**
   * The peer ended a request of ours, and our Cancel may be on its way: one that has begun goes on to its end.
   * @param {Request} request
   */
  #met(request) {
    const hasBegun = request.lane.at > 0 || request.lane.announced;
    if (request.state === "leaving" && hasBegun) {
      request.answered = true;
      return;
    }
    this.#actions.outgoing.clear(request.lane);
    request.state = after(request.state, "peer");
    this.#actions.over(request);
  }

  /**
   * @param {number} id
   * @param {Uint8Array} payload
   */
  #requestCancelled(id, payload) {
    const { outgoing, tables, unfinished } = this.#actions;
    const request = tables.requests.get(id);
    outgoing.reply(chunks.ACK_CANCEL_REQUEST, id);
    if (request === undefined) {
      this.chatter++;
      unfinished.end(chunks.REQUEST, id);
      return;
    }
    const before = request.state;
    request.state = after(before, "peer");
    if (before !== "left") {
      outgoing.clear(request.lane);
      this.#report("cancelled", request, payload);
    }
    this.#actions.over(request);
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {Uint8Array} payload
   */
  #cancelled(kind, id, payload) {
    const { events, heard, outgoing, tables } = this.#actions;
    if (id === chunks.TOP) {
      heard.add(kind);
      if (tables.top.sending === "open") outgoing.clear(tables.top.lane);
      events.push({ type: "cancelled", of: tables.top, payload });
      this.#actions.finish();
      return;
    }
    const ours = kind === chunks.CANCEL_PEER;
    outgoing.reply(ours ? chunks.ACK_CANCEL : chunks.ACK_CANCEL_PEER, id);
    if (this.#wasOpening(id, ours)) return;
    const channel = this.channel(id, ours);
    const before = channel.sending;
    channel.sending = after(before, "peer");
    if (before !== "left") {
      outgoing.clear(channel.lane);
      this.#report("cancelled", channel, payload);
    }
    this.#actions.over(channel);
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {Uint8Array} payload
   */
  #closed(kind, id, payload) {
    const { events, heard, outgoing, tables, unfinished } = this.#actions;
    const ours = kind === chunks.CLOSE_PEER;
    unfinished.end(ours ? chunks.MESSAGE_PEER : chunks.MESSAGE, id);
    if (id === chunks.TOP) {
      heard.add(kind);
      events.push({ type: "closed", of: tables.top, payload });
      this.#actions.finish();
      return;
    }
    outgoing.reply(ours ? chunks.ACK_CLOSE : chunks.ACK_CLOSE_PEER, id);
    if (this.#wasOpening(id, ours)) return;
    const channel = this.channel(id, ours);
    const before = channel.receiving;
    channel.receiving = after(before, "peer");
    if (before !== "left") {
      outgoing.clear(channel.cancelling);
      this.#report("closed", channel, payload);
    }
    this.#actions.over(channel);
  }

  /**
   * Whether the channel was ended before its opening was whole: there never was one.
   * @param {number} id
   * @param {boolean} ours
   */
  #wasOpening(id, ours) {
    const { tables, unfinished } = this.#actions;
    if (ours || tables.theirs.has(id)) return false;
    for (let kind = chunks.SINK; kind <= chunks.DUPLEX; kind++) unfinished.end(kind, id);
    return true;
  }

  /**
   * What was refused is not known to the program as something that the peer could end.
   * @param {"cancelled" | "closed"} type
   * @param {Channel | Request} of
   * @param {Uint8Array} payload
   */
  #report(type, of, payload) {
    if (!of.isRefused) this.#actions.events.push({ type, of, payload });
  }
}
