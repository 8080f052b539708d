/** What is to be said to the daemon, and what comes of it. */

import { Pending } from "./waiting.js";

/** Packets that leave together: messages, done when sent, or a request, done when answered. */
export class Entry extends Pending {
  /** How many of the packets have left. */
  sent = 0;
  /** Of all messages, before the request. */
  published = 0;
  /** Of the answer. */
  value = "";
  /** @type {((value: string) => void) | undefined} the daemon has done it */
  granted;
  /** The first of the packets is a SUB, which a new connection needs again, and no UNSUB. */
  isSub = false;

  /**
   * @param {Uint8Array[]} packets
   * @param {{key?: string, messages?: number}} what  what the last packet asks for, or how many messages they are
   */
  constructor(packets, { key = "", messages = 0 }) {
    super();
    this.packets = packets;
    this.expected = key === "ping" ? "pong" : key;
    this.messages = messages;
  }
}
