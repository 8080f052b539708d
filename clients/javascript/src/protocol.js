/** The packets of the local protocol, as a client builds and parses them (clients/PROTOCOL.md, "Packets"). */

import { InvalidError, ProtocolError } from "./errors.js";

/** Bytes; no packet is longer, either way. */
export const PACKET_LIMIT = 128 * 1024;
// Digits that 64 bits can have.
const NUMBER_DIGITS = 20;
const LENGTH_BYTES = 4;
const WHITE_SPACE = /[ \t\n\v\f\r\0]/;
const PACK = ascii("PACK ");

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/**
 * Bytes as they are, text as UTF-8.
 * @param {Uint8Array | string} payload
 */
export function encoded(payload) {
  if (typeof payload === "string") return encoder.encode(payload);
  if (payload instanceof Uint8Array) return payload;
  throw new InvalidError("a payload is a string or a Uint8Array");
}

/** @param {Uint8Array} bytes */
export const decoded = (bytes) => decoder.decode(bytes);

/** One message. Those who get the same message share its bytes: whoever changes them makes a copy. */
export class Message {
  /** How many messages the daemon dropped directly before this one: this program read too slowly. */
  lost = 0;
  /** @type {string | undefined} */
  src;
  /** @type {bigint | undefined} */
  seq;
  /** @type {string | undefined} */
  peer;
  /** @type {bigint | undefined} */
  timeNs;
  /** @type {string | undefined} */
  verdict;
  /** @type {Uint8Array | undefined} */
  datagram;
  /** @type {string | undefined} */
  interface;

  /**
   * @param {string} channel
   * @param {Uint8Array} payload
   */
  constructor(channel, payload) {
    this.channel = channel;
    this.payload = payload;
  }

  /** The payload as UTF-8. */
  get text() {
    return decoder.decode(this.payload);
  }

  /** Whether it is the last value of its channel, from before the subscription. Only the format `full` shows that. */
  get retained() {
    return this.verdict === "retained";
  }

  /** Whether a tap shows what was not delivered. */
  get isRejected() {
    return ![undefined, "ok", "retained", "repaired"].includes(this.verdict);
  }

  /**
   * The same, with something else in it.
   * @param {Partial<Pick<Message, "payload" | "lost">>} other
   * @returns {Message}
   */
  with(other) {
    return Object.assign(new Message(this.channel, this.payload), this, other);
  }
}

/**
 * What one packet (not a PACK) says: a message, or the key and value of an answer or a notice. Nothing of the packet is
 * kept. The channel `last`, if it is that of the message, need not be made again.
 * @param {Uint8Array} packet
 * @param {string} [last]
 * @returns {Message | {key: string, value: string}}
 */
export function parse(packet, last = "") {
  const nul = packet.indexOf(0);
  const end = nul < 0 ? packet.length : nul;
  if (nul >= 0 && begins(packet, "MSG ")) {
    return new Message(latin(packet, 4, end, last), new Uint8Array(packet.subarray(nul + 1)));
  }
  if (begins(packet, "CMSG ") && end > 5) {
    return { key: latin(packet, 5, end), value: nul < 0 ? "" : decoder.decode(packet.subarray(nul + 1)) };
  }
  const words = begins(packet, "RECV ") && nul >= 0 ? latin(packet, 5, end).split(" ") : [];
  if (words.length < 3 || words.length > 4 || !isNumber(words[1]) || words[3] === "") {
    const shown = latin(packet, 0, Math.min(32, packet.length));
    throw new ProtocolError(`the daemon sent ${JSON.stringify(shown)}, which is no packet of this protocol`);
  }
  return delivered(words, new Uint8Array(packet.subarray(nul + 1)), last);
}

/**
 * @param {string[]} words  peer, time, verdict, perhaps an interface
 * @param {Uint8Array} datagram
 * @param {string} last
 */
function delivered([peer, time, verdict, by], datagram, last) {
  const begin = datagram.indexOf(0x5d) + 1;
  const bar = datagram.indexOf(0x7c, begin);
  const fields = bar < 0 ? [] : latin(datagram, begin, bar).split(":");
  // Only a tap sees what has no fields: bytes that were rejected because they are not BCCN1.
  const isSound = fields.length === 3 && isNumber(fields[1]);
  const message = isSound
    ? new Message(fields[2] === last ? last : fields[2], datagram.subarray(bar + 1))
    : new Message("", new Uint8Array(0));
  if (isSound) [message.src, message.seq] = [fields[0], BigInt(fields[1])];
  message.peer = peer;
  message.timeNs = BigInt(time);
  message.verdict = verdict;
  message.datagram = datagram;
  message.interface = by;
  return message;
}

/** @param {string} text */
export function isNumber(text) {
  return text.length <= NUMBER_DIGITS && /^[0-9]+$/.test(text);
}

/**
 * @param {Uint8Array} packet
 * @param {string} word
 */
function begins(packet, word) {
  for (let at = 0; at < word.length; at++) if (packet[at] !== word.charCodeAt(at)) return false;
  return true;
}

/**
 * Bytes as characters of the same number: those of a sound packet are ASCII.
 * @param {Uint8Array} bytes
 * @param {number} begin
 * @param {number} end
 * @param {string} [last]  returned if it is the same
 */
function latin(bytes, begin, end, last = "") {
  let at = 0;
  if (last.length === end - begin) while (at < last.length && bytes[begin + at] === last.charCodeAt(at)) at++;
  if (at && at === last.length) return last;
  let text = "";
  for (let i = begin; i < end; i++) text += String.fromCharCode(bytes[i]);
  return text;
}

/** @param {string} text */
function ascii(text) {
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** @param {string} text */
const isAscii = (text) => /^[\0-\x7f]*$/.test(text);

/** @param {Uint8Array} packet */
export const isPack = (packet) => begins(packet, "PACK ");

/**
 * Gives each packet inside a PACK to `take`.
 * @param {Uint8Array} pack
 * @param {(packet: Uint8Array) => void} take
 */
export function unpack(pack, take) {
  const view = new DataView(pack.buffer, pack.byteOffset, pack.byteLength);
  for (let at = PACK.length; at < pack.length; ) {
    const start = at + LENGTH_BYTES;
    at = start > pack.length ? Infinity : start + view.getUint32(at);
    if (at > pack.length) throw new ProtocolError("the daemon sent a PACK whose lengths reach beyond it");
    take(pack.subarray(start, at));
  }
}

/**
 * A message to publish. The daemon checks the channel; here only what cannot be framed is refused.
 * @param {string} channel
 * @param {Uint8Array | string} payload
 */
export function buildMessage(channel, payload) {
  if (typeof channel !== "string" || channel.includes("\0") || !isAscii(channel)) {
    throw new InvalidError(`channel ${JSON.stringify(channel)}: must be ASCII without NUL`);
  }
  const bytes = encoded(payload);
  const packet = new Uint8Array(5 + channel.length + bytes.length);
  packet.set(ascii(`MSG ${channel}\0`));
  packet.set(bytes, 5 + channel.length);
  return packet;
}

/**
 * @param {"SUB" | "UNSUB"} word
 * @param {string} pattern
 */
export function buildSub(word, pattern) {
  if (typeof pattern !== "string" || WHITE_SPACE.test(pattern) || !isAscii(pattern)) {
    throw new InvalidError(`pattern ${JSON.stringify(pattern)}: must be ASCII without white space`);
  }
  return ascii(`${word} ${pattern}`);
}

/**
 * @param {string} key
 * @param {string} [value]
 */
export function buildControl(key, value) {
  if (typeof key !== "string" || !key || WHITE_SPACE.test(key)) {
    throw new InvalidError(`control key ${JSON.stringify(key)}: must not be empty nor contain white space`);
  }
  return encoder.encode(value === undefined ? `CMSG ${key}` : `CMSG ${key}\0${value}`);
}

/**
 * Several packets as one.
 * @param {readonly Uint8Array[]} packets
 */
export function buildPack(packets) {
  const pack = new Uint8Array(packets.reduce((size, packet) => size + packedSize(packet), PACK.length));
  const view = new DataView(pack.buffer);
  pack.set(PACK);
  let at = PACK.length;
  for (const packet of packets) {
    view.setUint32(at, packet.length);
    pack.set(packet, at + LENGTH_BYTES);
    at += packedSize(packet);
  }
  return pack;
}

/** @param {Uint8Array} packet */
export const packedSize = (packet) => LENGTH_BYTES + packet.length;
