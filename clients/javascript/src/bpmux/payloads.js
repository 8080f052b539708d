/**
 * Payloads that have begun and not ended, and what they may hold together.
 *
 * A payload comes in one chunk or, announced, in several of the same kind and id; and a chunk comes in pieces. What is
 * too long is counted to its end and not kept, since only then the next one begins.
 */

import { CANCEL_REQUEST, CLOSE_PEER, DUPLEX, SINK } from "./chunks.js";
import { BpmuxError } from "./errors.js";

/** @typedef {import("./limits.js").Limits} Limits */

// The first memory that a payload in pieces takes; it doubles as they come, whatever total was announced.
const FIRST_BYTES = 256;

/**
 * Of these too long a payload is cut and not refused: they take effect all the same.
 * @param {number} kind
 */
const isEnding = (kind) => kind >= CANCEL_REQUEST && kind <= CLOSE_PEER;

export class Payload {
  /** Bytes of the chunks that have begun. */
  promised = 0;
  received = 0;
  /** Whether it will be there as a whole. */
  isKept = true;
  kept = 0;
  /** @type {Uint8Array} */
  #memory = new Uint8Array(0);

  /**
   * @param {number} kind
   * @param {number} id
   * @param {number} total
   */
  constructor(kind, id, total) {
    this.kind = kind;
    this.id = id;
    this.total = total;
  }

  get isWhole() {
    return this.received === this.total;
  }

  /** What is kept of it. */
  get bytes() {
    return this.#memory.subarray(0, this.kept);
  }

  /**
   * A chunk of this length begins.
   * @param {number} length
   */
  promise(length) {
    this.promised += length;
    if (this.promised > this.total) throw new BpmuxError("partial", `${this.promised} bytes of ${this.total}`);
  }

  /** @param {Uint8Array} piece */
  keep(piece) {
    if (this.kept === 0 && piece.length === this.total) {
      this.#memory = piece;
    } else if (this.kept + piece.length > this.#memory.length) {
      const memory = new Uint8Array(Math.max(2 * this.#memory.length, this.kept + piece.length, FIRST_BYTES));
      memory.set(this.bytes);
      this.#memory = memory;
      memory.set(piece, this.kept);
    } else {
      this.#memory.set(piece, this.kept);
    }
    this.kept += piece.length;
  }

  drop() {
    this.kept = 0;
    this.#memory = new Uint8Array(0);
  }
}

/** `held`: bytes of all. Who has more under way than there can be things to talk about is dropped. */
export class Unfinished {
  held = 0;
  /** @type {Map<number, Payload>} */
  #payloads = new Map();
  #limits;

  /** @param {Limits} limits */
  constructor(limits) {
    this.#limits = limits;
  }

  get size() {
    return this.#payloads.size;
  }

  /**
   * @param {number} kind
   * @param {number} id
   */
  get(kind, id) {
    return this.#payloads.get(keyOf(kind, id));
  }

  /**
   * That of a channel with this id, whatever it is to be.
   * @param {number} id
   */
  opening(id) {
    for (let kind = SINK; kind <= DUPLEX; kind++) {
      const payload = this.get(kind, id);
      if (payload) return payload;
    }
    return undefined;
  }

  /**
   * @param {number} kind
   * @param {number} id
   * @param {number} total
   */
  begin(kind, id, total) {
    if (this.size >= this.#limits.payloads) throw new BpmuxError("limit", `${this.size} payloads have not ended`);
    const payload = new Payload(kind, id, total);
    payload.isKept = total <= this.#limits.payload || isEnding(kind);
    this.#payloads.set(keyOf(kind, id), payload);
    return payload;
  }

  /**
   * @param {Payload} payload
   * @param {Uint8Array} piece
   */
  add(payload, piece) {
    payload.received += piece.length;
    if (!payload.isKept || !piece.length) return;
    const room = Math.max(0, Math.min(this.#limits.payload - payload.kept, this.#limits.unfinished - this.held));
    if (piece.length > room && !isEnding(payload.kind)) {
      this.#giveBack(payload);
      payload.isKept = false;
      return;
    }
    payload.keep(piece.subarray(0, room));
    this.held += Math.min(piece.length, room);
  }

  /**
   * It is whole, or what it belonged to is over.
   * @param {number} kind
   * @param {number} id
   */
  end(kind, id) {
    const payload = this.get(kind, id);
    if (payload) {
      this.#giveBack(payload);
      this.#payloads.delete(keyOf(kind, id));
    }
  }

  /** @param {Payload} payload */
  #giveBack(payload) {
    this.held -= payload.kept;
    payload.drop();
  }
}

/**
 * @param {number} kind  below 16
 * @param {number} id
 */
function keyOf(kind, id) {
  return (id + 1) * 16 + kind;
}
