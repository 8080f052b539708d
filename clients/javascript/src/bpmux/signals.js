/** What chunks without a payload do: credit, acknowledgements, heartbeats. */

import * as chunks from "./chunks.js";
import { after, isHeard, isSaid } from "./entities.js";
import { BpmuxError } from "./errors.js";
import { SMALL_GRANT } from "./limits.js";

/** @typedef {import("./actions.js").Actions} Actions */

export class Signals {
  /** Heartbeats, and grants of next to nothing. */
  chatter = 0;
  #actions;

  /** @param {Actions} actions */
  constructor(actions) {
    this.#actions = actions;
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {number | bigint} number
   */
  take(kind, id, number) {
    switch (kind) {
      case chunks.CREDIT: // for what the peer opened; without an id for the top level
      case chunks.CREDIT_PEER:
        return this.#credit(id, kind === chunks.CREDIT_PEER, number);
      case chunks.ACK_CANCEL:
      case chunks.ACK_CANCEL_PEER:
        return this.#cancelAcknowledged(id, kind === chunks.ACK_CANCEL_PEER);
      case chunks.ACK_CLOSE:
      case chunks.ACK_CLOSE_PEER:
        return this.#closeAcknowledged(id, kind === chunks.ACK_CLOSE_PEER);
      case chunks.ACK_CANCEL_REQUEST:
        return this.#requestCancelAcknowledged(id);
      case chunks.ACK_CLOSE_RESPONSE:
        return this.#responseCloseAcknowledged(id);
      case chunks.PING:
      case chunks.PING_PEER:
        return this.#ping(id, kind === chunks.PING_PEER);
      case chunks.PING_REQUEST:
        return this.#pingOfRequest(id);
      default: // a pong: for the top level whatever comes is one, and we ask for nothing else
        this.chatter++;
    }
  }

  /**
   * @param {number} id
   * @param {boolean} ours
   */
  #channel(id, ours) {
    const { tables } = this.#actions;
    if (id === chunks.TOP) return tables.top;
    const channel = (ours ? tables.ours : tables.theirs).get(id);
    if (!channel?.isOpen) throw new BpmuxError("state", `there is no channel ${id}`);
    return channel;
  }

  /**
   * @param {number} id
   * @param {boolean} ours
   * @param {number | bigint} amount
   */
  #credit(id, ours, amount) {
    const channel = this.#channel(id, ours);
    if (!isHeard(channel.sending)) throw new BpmuxError("state", `credit for ${channel}, which has ended`);
    if (amount < SMALL_GRANT) this.chatter++;
    this.#actions.outgoing.credited(channel.account, amount);
  }

  /**
   * Of a way on which we received: what had begun on it is not finished any more.
   * @param {number} id
   * @param {boolean} ours
   */
  #cancelAcknowledged(id, ours) {
    const channel = this.#channel(id, ours);
    channel.receiving = after(channel.receiving, "acknowledged");
    this.#actions.unfinished.end(ours ? chunks.MESSAGE_PEER : chunks.MESSAGE, id);
    this.#actions.unfinished.end(ours ? chunks.CLOSE_PEER : chunks.CLOSE, id);
    this.#actions.over(channel);
  }

  /**
   * @param {number} id
   * @param {boolean} ours
   */
  #closeAcknowledged(id, ours) {
    const channel = this.#channel(id, ours);
    channel.sending = after(channel.sending, "acknowledged");
    this.#actions.unfinished.end(ours ? chunks.CANCEL_PEER : chunks.CANCEL, id);
    this.#actions.over(channel);
  }

  /** @param {number} id */
  #requestCancelAcknowledged(id) {
    const request = this.#actions.tables.asked.get(id);
    if (!request) throw new BpmuxError("state", `there is no request ${id}`);
    request.state = after(request.state, "acknowledged");
    this.#actions.unfinished.end(chunks.RESPONSE, id);
    this.#actions.unfinished.end(chunks.CLOSE_RESPONSE, id);
    this.#actions.over(request);
  }

  /** @param {number} id */
  #responseCloseAcknowledged(id) {
    const request = this.#actions.tables.requests.get(id);
    if (!request) throw new BpmuxError("state", `there is no request ${id}`);
    request.state = after(request.state, "acknowledged");
    this.#actions.over(request);
  }

  /**
   * No pong once we have said all that we say: the peer may have forgotten the channel by then.
   * @param {number} id
   * @param {boolean} ours
   */
  #ping(id, ours) {
    this.chatter++;
    const channel = this.#channel(id, ours);
    if (id === chunks.TOP || isSaid(channel.sending) || isSaid(channel.receiving)) {
      this.#actions.outgoing.reply(ours || id === chunks.TOP ? chunks.PONG : chunks.PONG_PEER, id);
    }
  }

  /** @param {number} id */
  #pingOfRequest(id) {
    this.chatter++;
    const request = this.#actions.tables.requests.get(id);
    if (request && isSaid(request.state)) this.#actions.outgoing.reply(chunks.PONG_REQUEST, id);
  }
}
