/** What one connection may hold, each bound with its reason. Beyond it something is refused with a reason, or ends. */

/** No chunk that is sent is longer: the next payload that waits has its turn after it. */
export const PIECE_LIMIT = 16 * 1024;

/** What may wait of something without a payload, and of each payload besides its bytes. */
export const ITEM_BYTES = 64;

/** Grants below this, and payloads without a byte, are counted as chatter. */
export const SMALL_GRANT = 16;

/** Those of one side. Channels and requests are bounded once for those of the peer and once for our own. */
export class Limits {
  /** At a time. */
  channels = 1024;
  requests = 1024;
  /** The peer's credit for the top level, from which all openings, answers and refusals are paid. */
  reserve = 64 * 1024;
  /** Bytes of one payload, either way: a packet of the local bus has 128 KiB at most. */
  payload = 128 * 1024;
  /** Bytes of payloads that have begun and not ended, of the whole connection. */
  unfinished = 1024 * 1024;
  /** Bytes of messages that wait on one channel; then `send` takes no more until half of them are gone. */
  queue = 256 * 1024;
  /** What was refused and not yet acknowledged, at a time. A peer that opens more reads no refusals. */
  refused = 64;
  /** Bytes of acknowledgements, grants and heartbeats that wait to be sent. A peer that causes more does not read. */
  replies = 1024 * 1024;

  /** @param {Partial<Limits>} [wanted] */
  constructor(wanted = {}) {
    const { payloads: _, ...own } = wanted;
    Object.assign(this, own);
  }

  /** Payloads that have begun and not ended, at a time: all that may be said at once about all that there can be. */
  get payloads() {
    return 6 * (this.channels + this.refused) + 4 * (this.requests + this.refused);
  }
}
