/** Messages that share packets. */

import { buildMessage, buildPack, packedSize } from "./protocol.js";
import { asyncDispose } from "./subscription.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").Patience} Patience */

// Bytes of a PACK before its first packet.
const PACK_HEAD = 5;

/**
 * Gathers messages into as few packets as possible, if packing was agreed (`pack`); otherwise they go one by one. All of
 * it has been handed over after `flush`.
 */
export class Batch {
  /** @type {Uint8Array[]} */
  #packets = [];
  #size = PACK_HEAD;
  #session;

  /** @param {Session} session */
  constructor(session) {
    this.#session = session;
  }

  /**
   * Adds a message; sends what is full. Its errors are those of `Client.publish`, about any message of the batch.
   * @param {string} channel
   * @param {Uint8Array | string} payload
   * @param {Patience} [patience]
   */
  async publish(channel, payload, patience) {
    const packet = buildMessage(channel, payload);
    const limit = this.#session.packLimit;
    if (this.#packets.length && this.#size + packedSize(packet) > limit) await this.flush(patience);
    this.#packets.push(packet);
    this.#size += packedSize(packet);
    if (this.#size > limit) await this.flush(patience);
  }

  /** Hands the rest of the batch over. @param {Patience} [patience] */
  async flush(patience) {
    const packets = this.#packets;
    const isPacked = packets.length > 1 && this.#size <= this.#session.packLimit;
    [this.#packets, this.#size] = [[], PACK_HEAD];
    const all = isPacked
      ? [{ packet: buildPack(packets), messages: packets.length }]
      : packets.map((packet) => ({ packet, messages: 1 }));
    await this.#session.transmit(all, patience);
  }

  async [asyncDispose]() {
    await this.flush();
  }
}
