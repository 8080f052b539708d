/**
 * What the peer sends: whether each chunk may come now, and what it costs. What it does is in wholes.js.
 *
 * A chunk is judged when its head is there: what it names, the credit it spends, the total it was announced with. Only
 * then is anything of its payload kept. Whatever could not have been sent by a peer that follows the rules throws a
 * BpmuxError. Four things look like that and are not, since they may have crossed something of ours:
 *
 * - a Cancel of a request that is not there: it was answered. It is acknowledged like any other.
 * - a ping for a request that is not there, for the same reason. It is passed over.
 * - a pong that nobody waits for. It is passed over.
 * - messages, responses and closings of what we have just cancelled. They are paid for and dropped.
 */

import * as chunks from "./chunks.js";
import { isHeard } from "./entities.js";
import { BpmuxError } from "./errors.js";
import { Payload } from "./payloads.js";
import { Signals } from "./signals.js";
import { TOO_LONG, Wholes } from "./wholes.js";

/** @typedef {import("./actions.js").Actions} Actions */
/** @typedef {import("./entities.js").Channel} Channel */

/**
 * Chunks about a channel that their receiver opened: that is us.
 * @param {number} kind
 */
const isOurs = (kind) =>
  kind === chunks.MESSAGE_PEER || kind === chunks.CANCEL_PEER || kind === chunks.CLOSE_PEER;

/** @param {number} kind */
const isMessage = (kind) => kind === chunks.MESSAGE || kind === chunks.MESSAGE_PEER;

export class Incoming {
  /** Chunks so far. */
  count = 0;
  /** @type {number | null} */
  #announced = null;
  #current = new Payload(chunks.MESSAGE, chunks.TOP, 0);
  /** Whoever paid for the chunk that is coming in. @type {Channel} */
  #payer;
  #reader = new chunks.Reader();
  #actions;
  #wholes;
  #signals;

  /** @param {Actions} actions */
  constructor(actions) {
    this.#actions = actions;
    this.#payer = actions.tables.top;
    this.#wholes = new Wholes(actions);
    this.#signals = new Signals(actions);
  }

  /** Chunks that moved nothing, and cost their sender no credit. */
  get chatter() {
    return this.#signals.chatter + this.#wholes.chatter + this.#empty;
  }

  #empty = 0;

  /** @param {Uint8Array} data */
  receive(data) {
    this.#reader.feed(data, (kind, id, number, piece, rest) => {
      if (this.#actions.isFinished) return;
      if (kind < 0) {
        this.#add(this.#current, piece, rest);
        return;
      }
      this.count++;
      if (chunks.carriesPayload(kind)) {
        this.#carry(kind, id, Number(number), piece, rest);
      } else if (this.#announced !== null) {
        throw new BpmuxError("partial", `a total is followed by ${chunks.NAMES[kind]}`);
      } else if (kind === chunks.PARTIAL) {
        this.#announced = Number(number);
      } else {
        this.#signals.take(kind, id, number);
      }
    });
  }

  /**
   * A chunk with a payload begins.
   * @param {number} kind
   * @param {number} id
   * @param {number} length
   * @param {Uint8Array} piece
   * @param {number} rest
   */
  #carry(kind, id, length, piece, rest) {
    const { unfinished } = this.#actions;
    const announced = this.#announced;
    this.#announced = null;
    let payload = unfinished.get(kind, id);
    const payer = this.#admit(kind, id, payload === undefined);
    if (length > payer.credit) throw new BpmuxError("credit", `${length} bytes for ${payer}, of ${payer.credit}`);
    payer.credit -= length;
    if (!length) this.#empty++;
    if (payload === undefined) payload = unfinished.begin(kind, id, announced ?? length);
    else if (announced !== null) throw new BpmuxError("partial", `a ${chunks.NAMES[kind]} of ${id} is under way already`);
    payload.promise(length);
    this.#current = payload;
    this.#payer = payer;
    this.#add(payload, piece, rest);
  }

  /**
   * A piece of the chunk that is coming in, of which `rest` is still to come.
   * @param {Payload} payload
   * @param {Uint8Array} piece
   * @param {number} rest
   */
  #add(payload, piece, rest) {
    const { unfinished } = this.#actions;
    unfinished.add(payload, piece);
    if (!payload.isKept) this.#stop(payload);
    if (payload.isWhole) {
      const kept = payload.bytes;
      unfinished.end(payload.kind, payload.id);
      this.#wholes.take(payload.kind, payload.id, kept, payload.isKept);
    }
    if (!rest && !this.#actions.isFinished) this.#actions.topUp(this.#payer);
  }

  /**
   * Have the peer send no more of what is too long, where it can be told before the end.
   * @param {Payload} payload
   */
  #stop(payload) {
    if (payload.kind === chunks.RESPONSE) {
      const request = this.#wholes.asked(payload.kind, payload.id);
      if (request.state === "open") this.#actions.refuse(request, TOO_LONG);
    } else if (isMessage(payload.kind)) {
      const channel = this.#wholes.channel(payload.id, isOurs(payload.kind));
      if (channel.receiving === "open") this.#actions.refuse(channel, TOO_LONG);
    }
  }

  /**
   * Whose credit pays. Throws if no such chunk may come now.
   * @param {number} kind
   * @param {number} id
   * @param {boolean} isNew
   */
  #admit(kind, id, isNew) {
    const { tables, unfinished, heard } = this.#actions;
    if (isMessage(kind)) {
      const channel = this.#wholes.channel(id, isOurs(kind));
      const isClosed = id === chunks.TOP && heard.has(chunks.CLOSE);
      this.#require(isHeard(channel.receiving) && !isClosed, kind, id);
      return channel;
    }
    if (kind >= chunks.SINK) {
      if (isNew && (tables.theirs.has(id) || unfinished.opening(id))) {
        throw new BpmuxError("id", `a channel ${id} is open already`);
      }
    } else if (kind === chunks.REQUEST) {
      if (isNew && (tables.requests.has(id) || unfinished.get(chunks.CANCEL_REQUEST, id))) {
        throw new BpmuxError("id", `a request ${id} is open already`);
      }
    } else if (kind === chunks.RESPONSE || kind === chunks.CLOSE_RESPONSE) {
      this.#wholes.asked(kind, id);
    } else if (kind !== chunks.CANCEL_REQUEST) {
      this.#admitEnding(kind, id);
    }
    return tables.top;
  }

  /**
   * @param {number} kind
   * @param {number} id
   */
  #admitEnding(kind, id) {
    const isCancel = kind === chunks.CANCEL || kind === chunks.CANCEL_PEER;
    if (id === chunks.TOP) {
      this.#require(!this.#actions.heard.has(kind), kind, id);
    } else if (isOurs(kind) || this.#actions.tables.theirs.has(id)) {
      const channel = this.#wholes.channel(id, isOurs(kind));
      this.#require(isHeard(isCancel ? channel.sending : channel.receiving), kind, id);
    } else {
      const opening = this.#actions.unfinished.opening(id);
      const fits = opening?.kind === chunks.DUPLEX || opening?.kind === (isCancel ? chunks.STREAM : chunks.SINK);
      this.#require(fits, kind, id);
    }
  }

  /**
   * @param {boolean} sound
   * @param {number} kind
   * @param {number} id
   */
  #require(sound, kind, id) {
    if (!sound) throw new BpmuxError("state", `${chunks.NAMES[kind]} of ${id}, which has ended`);
  }
}
