/**
 * The chunks of bpmux/rel (clients/BPMUX.md, "Chunks"), and where each begins in a stream of bytes.
 *
 * A chunk is a tag, an id, a number and a payload, most without one or the other. Kinds below 16 are the types of the
 * document; 16 + a type is its other meaning, the one without an id. A name without PEER is about what the sender of
 * the chunk opened, one with PEER about what its receiver opened.
 *
 * A number is a length, an amount of credit or a total: up to 2^64. Only for credit the last digit of it counts, so
 * only a `credit` beyond what a number holds exactly is a bigint.
 */

import { BpmuxError } from "./errors.js";

export const CANCEL_REQUEST = 0, CLOSE_RESPONSE = 1, CANCEL = 2, CANCEL_PEER = 3, CLOSE = 4, CLOSE_PEER = 5;
export const MESSAGE = 6, MESSAGE_PEER = 7, REQUEST = 8, RESPONSE = 9, SINK = 10, STREAM = 11, DUPLEX = 12;
export const PING = 13, CREDIT = 14, CREDIT_PEER = 15;

export const ACK_CANCEL_REQUEST = 16 + CANCEL_REQUEST, ACK_CLOSE_RESPONSE = 16 + CLOSE_RESPONSE;
export const ACK_CLOSE = 16 + CANCEL_PEER, ACK_CANCEL = 16 + CLOSE_PEER;
export const ACK_CLOSE_PEER = 16 + STREAM, ACK_CANCEL_PEER = 16 + SINK;
export const PING_REQUEST = 16 + DUPLEX, PONG_REQUEST = 16 + MESSAGE_PEER;
export const PONG = 16 + PING, PARTIAL = 16 + CREDIT_PEER;
// The bit in the middle of the tag of a heartbeat.
export const PING_PEER = 32, PONG_PEER = 33;

/** @type {Readonly<Record<number, string>>} */
export const NAMES = Object.freeze({
  0: "cancel-request", 1: "close-response", 2: "cancel", 3: "cancel-peer", 4: "close", 5: "close-peer",
  6: "message", 7: "message-peer", 8: "request", 9: "response", 10: "sink", 11: "stream", 12: "duplex",
  13: "ping", 14: "credit", 15: "credit-peer", 16: "ack-cancel-request", 17: "ack-close-response", 19: "ack-close",
  21: "ack-cancel", 23: "pong-request", 26: "ack-cancel-peer", 27: "ack-close-peer", 28: "ping-request",
  29: "pong", 31: "partial", 32: "ping-peer", 33: "pong-peer",
});

/** The id of the top level, which has none on the wire. */
export const TOP = -1;
/** Of all the credit that somebody has at a time, exclusive. */
export const CREDIT_LIMIT = 1n << 64n;

const WIDTHS = [1, 2, 4, 8];

const HEARTBEATS = [PING, PING_PEER, PONG, PONG_PEER];
const WITH_TOP = new Set([CANCEL, CLOSE, MESSAGE, CREDIT, PING, PONG]);

/** @param {number} kind */
export const carriesPayload = (kind) => kind < PING;

/**
 * How to read what begins with a tag: the kind, and the bytes of id and number, 0 where there is none.
 * @typedef {{kind: number, id: number, number: number}} Form
 */

/** @type {readonly (Form | null)[]} */
const FORMS = Array.from({ length: 256 }, (_, tag) => formOf(tag >> 4, (tag >> 2) & 3, tag & 3));

/**
 * @param {number} type
 * @param {number} first
 * @param {number} second
 * @returns {Form | null}  null: no chunk begins so
 */
function formOf(type, first, second) {
  if (type === PING) {
    const kind = HEARTBEATS[first];
    if (second < 3) return { kind, id: WIDTHS[second], number: 0 };
    return WITH_TOP.has(kind) ? { kind, id: 0, number: 0 } : null;
  }
  if (first < 3) return { kind: type, id: WIDTHS[first], number: WIDTHS[second] };
  if (type === REQUEST || type === RESPONSE) return null;
  if (WITH_TOP.has(type)) return { kind: type, id: 0, number: WIDTHS[second] };
  if (type === CREDIT_PEER) return { kind: PARTIAL, id: 0, number: WIDTHS[second] };
  return second < 3 ? { kind: 16 + type, id: WIDTHS[second], number: 0 } : null;
}

/**
 * The bytes of a chunk up to its payload, in the narrowest form.
 * @param {number} kind
 * @param {number} id
 * @param {number | bigint} [number]
 * @returns {Uint8Array}
 */
export function head(kind, id, number = 0) {
  const beat = HEARTBEATS.indexOf(kind);
  if (beat >= 0) return id === TOP ? Uint8Array.of((PING << 4) | (beat << 2) | 3) : wide((PING << 4) | (beat << 2), id);
  if (kind === PARTIAL) return wide((CREDIT_PEER << 4) | 12, number);
  if (kind >= 16) return wide(((kind - 16) << 4) | 12, id);
  if (id === TOP) return wide((kind << 4) | 12, number);
  const out = wide(kind << 4, number);
  const size = WIDTHS[widthOf(id)];
  const whole = new Uint8Array(out.length + size);
  whole[0] = out[0] | (widthOf(id) << 2);
  write(whole, 1, size, id);
  whole.set(out.subarray(1), 1 + size);
  return whole;
}

/**
 * @param {number} tag
 * @param {number | bigint} number
 */
function wide(tag, number) {
  const width = widthOf(number);
  const out = new Uint8Array(1 + WIDTHS[width]);
  out[0] = tag | width;
  write(out, 1, WIDTHS[width], number);
  return out;
}

/** @param {number | bigint} number */
function widthOf(number) {
  return number < 0x100 ? 0 : number < 0x10000 ? 1 : number < 0x100000000 ? 2 : 3;
}

/**
 * @param {Uint8Array} out
 * @param {number} at
 * @param {number} size
 * @param {number | bigint} number
 */
function write(out, at, size, number) {
  if (size === 8) {
    new DataView(out.buffer, out.byteOffset).setBigUint64(at, BigInt(number));
    return;
  }
  let rest = Number(number);
  for (let i = at + size - 1; i >= at; i--) {
    out[i] = rest & 0xff;
    rest >>>= 8;
  }
}

/**
 * What a chunk is given to: `rest` is how much of its payload is still to come. What comes of that later has the kind
 * -1. `number` is a bigint only where it is credit, and more than a number holds exactly.
 * @typedef {(kind: number, id: number, number: number | bigint, piece: Uint8Array, rest: number) => void} Taker
 */

const NOTHING = new Uint8Array(0);

/** Takes a stream of bytes apart, however it is cut. It keeps the beginning of a head and no payload. */
export class Reader {
  #begun = NOTHING;
  #rest = 0;

  /** Whether a chunk has begun and is not all there. */
  get isWithin() {
    return this.#begun.length > 0 || this.#rest > 0;
  }

  /**
   * Gives each chunk, as much as is here of it, to `take`. Throws at a tag with which no chunk begins.
   * @param {Uint8Array} data
   * @param {Taker} take
   */
  feed(data, take) {
    let at = 0;
    if (this.#rest) {
      const piece = data.subarray(0, this.#rest);
      this.#rest -= piece.length;
      at = piece.length;
      take(-1, 0, 0, piece, this.#rest);
    }
    if (this.#begun.length) {
      const joined = new Uint8Array(this.#begun.length + data.length - at);
      joined.set(this.#begun);
      joined.set(data.subarray(at), this.#begun.length);
      [data, at, this.#begun] = [joined, 0, NOTHING];
    }
    const end = data.length;
    while (at < end) {
      const form = FORMS[data[at]];
      if (form === null) throw new BpmuxError("tag", `no chunk begins with ${data[at]}`);
      const start = at + 1 + form.id + form.number;
      if (start > end) {
        this.#begun = new Uint8Array(data.subarray(at));
        return;
      }
      const id = form.id ? read(data, at + 1, form.id) : TOP;
      const number = form.number ? read(data, at + 1 + form.id, form.number) : 0;
      if (carriesPayload(form.kind)) {
        at = Math.min(start + number, end);
        this.#rest = start + number - at;
        take(form.kind, id, number, data.subarray(start, at), this.#rest);
      } else {
        at = start;
        const isExact = number <= Number.MAX_SAFE_INTEGER;
        take(form.kind, id, isExact ? number : readExactly(data, start - 8), NOTHING, 0);
      }
    }
  }
}

/**
 * @param {Uint8Array} data
 * @param {number} at
 * @param {number} size
 */
function read(data, at, size) {
  let number = 0;
  for (const end = at + size; at < end; at++) number = number * 256 + data[at];
  return number;
}

/**
 * @param {Uint8Array} data
 * @param {number} at
 */
function readExactly(data, at) {
  return new DataView(data.buffer, data.byteOffset).getBigUint64(at);
}
