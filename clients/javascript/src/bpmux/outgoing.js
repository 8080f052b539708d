/**
 * What waits to be sent: who may go, in turn, and as much of it as the peer's credit allows.
 *
 * - What costs no credit (acknowledgements, grants, heartbeats) goes first, in the order in which it was caused.
 * - Each channel and request has a lane. Lanes take turns: a lane sends up to PIECE_LIMIT bytes and goes to the back.
 * - A lane whose next payload finds no credit waits beside the account that is empty and holds up nobody else.
 * - A payload that does not go in one chunk is announced (partial mode) and goes in several.
 * - Nothing is made into bytes before it is asked for: what the carrier does not take waits where it can be cancelled.
 */

import { CREDIT, CREDIT_LIMIT, CREDIT_PEER, DUPLEX, head, MESSAGE, MESSAGE_PEER, PARTIAL, REQUEST, TOP } from "./chunks.js";
import { Channel } from "./entities.js";
import { BpmuxError } from "./errors.js";
import { ITEM_BYTES, PIECE_LIMIT } from "./limits.js";

/** @typedef {import("./entities.js").Account} Account */
/** @typedef {import("./entities.js").Lane} Lane */
/** @typedef {import("./entities.js").Request} Request */

/**
 * What its credit pays for is a channel, or a request.
 * @param {number} kind
 */
const isOpening = (kind) => kind > REQUEST + 1 && kind <= DUPLEX;

/** Bytes that are gathered, in memory that doubles. */
class Bytes {
  #memory = new Uint8Array(64);
  length = 0;

  /** @param {Uint8Array} part */
  add(part) {
    const end = this.length + part.length;
    if (end > this.#memory.length) {
      const memory = new Uint8Array(Math.max(end, 2 * this.#memory.length));
      memory.set(this.#memory.subarray(0, this.length));
      this.#memory = memory;
    }
    this.#memory.set(part, this.length);
    this.length = end;
  }

  /** All of them. Nothing is to be added behind that. */
  get all() {
    return this.#memory.subarray(0, this.length);
  }
}

export class Outgoing {
  /** Bytes of payloads in all lanes, with ITEM_BYTES for each. */
  waiting = 0;
  #replies = new Bytes();
  /** @type {Set<Lane>} */
  #ready = new Set();
  #isStopped = false;
  #top;
  #limit;
  #sent;

  /**
   * @param {Account} top  credit for the top level
   * @param {number} limit  bytes of replies
   * @param {(entity: Channel | Request, kind: number) => void} sent  the last byte of a payload went out
   */
  constructor(top, limit, sent) {
    this.#top = top;
    this.#limit = limit;
    this.#sent = sent;
  }

  /** Bytes that need no credit and were not asked for yet. */
  get replies() {
    return this.#replies.length;
  }

  /** Whether `take` would give something. */
  get hasMore() {
    const goes = this.#ready.size > 0 || (this.#top.waiting.size > 0 && this.#top.credit > 0);
    return !this.#isStopped && (this.replies > 0 || goes);
  }

  /** The connection is finished: what is being taken is the last. */
  stop() {
    this.#isStopped = true;
  }

  /**
   * Without credit. Throws for a peer that causes more than it reads.
   * @param {number} kind
   * @param {number} id
   * @param {number} [number]
   */
  reply(kind, id, number = 0) {
    this.#replies.add(head(kind, id, number));
    if (this.replies > this.#limit) throw new BpmuxError("limit", "the peer does not read the replies that it causes");
  }

  /**
   * @param {Channel} channel
   * @param {number} amount
   */
  grant(channel, amount) {
    channel.credit += amount;
    this.reply(channel.ours ? CREDIT : CREDIT_PEER, channel.id, amount);
  }

  /**
   * @param {Lane} lane
   * @param {number} kind
   * @param {Uint8Array} payload
   */
  add(lane, kind, payload) {
    lane.items.push({ kind, payload });
    this.#charge(lane, payload.length + ITEM_BYTES);
    this.start(lane);
  }

  /**
   * Let a lane have its turns once its channel is open; an opening itself goes at once.
   * @param {Lane} lane
   */
  start(lane) {
    const [first] = lane.items;
    if (lane.place === null && first && (lane.entity.isOpen || isOpening(first.kind) || first.kind === REQUEST)) {
      this.#ready.add(lane);
      lane.place = this.#ready;
    }
  }

  /**
   * Take back what is not sent, but for an opening, which the peer may have seen the beginning of.
   * @param {Lane} lane
   */
  clear(lane) {
    const [first] = lane.items;
    this.#charge(lane, -lane.size);
    lane.items.length = 0;
    if (first && (isOpening(first.kind) || first.kind === REQUEST)) {
      lane.items.push(first);
      this.#charge(lane, first.payload.length + ITEM_BYTES);
      return;
    }
    lane.at = 0;
    lane.announced = false;
    lane.place?.delete(lane);
    lane.place = null;
  }

  /**
   * The peer gives more credit, of which there may be less than CREDIT_LIMIT.
   * @param {Account} account
   * @param {number | bigint} amount
   */
  credited(account, amount) {
    const all = account.beyond ? 0 : account.credit + Number(amount);
    if (all && all <= Number.MAX_SAFE_INTEGER) {
      account.credit = all;
    } else {
      const exact = BigInt(account.credit) + account.beyond + BigInt(amount);
      if (exact >= CREDIT_LIMIT) throw new BpmuxError("credit", "more than there may be");
      account.credit = Number(exact < Number.MAX_SAFE_INTEGER ? exact : Number.MAX_SAFE_INTEGER);
      account.beyond = exact - BigInt(account.credit);
    }
    if (account !== this.#top && account.credit) this.#wake(account);
  }

  /**
   * Let the lane that has waited longest try again. Each turn wakes one for the top level, and no more: a grant of one
   * byte does not set a thousand lanes in motion.
   * @param {Account} account
   */
  #wake(account) {
    for (const lane of account.waiting) {
      account.waiting.delete(lane);
      this.#ready.add(lane);
      lane.place = this.#ready;
      return;
    }
  }

  /**
   * Up to about `limit` bytes (one piece more at most); empty if nothing may go now.
   * @param {number} limit
   */
  take(limit) {
    const out = this.#replies;
    this.#replies = new Bytes();
    if (this.#isStopped) return new Uint8Array(0);
    while (out.length < limit && !this.#isStopped) {
      if (this.#top.credit) this.#wake(this.#top);
      const [lane] = this.#ready;
      if (!lane) break;
      this.#ready.delete(lane);
      lane.place = null;
      this.#turn(lane, out);
    }
    if (this.replies) {
      out.add(this.#replies.all); // credit that waited for an opening
      this.#replies = new Bytes();
    }
    return out.all;
  }

  /**
   * @param {Lane} lane
   * @param {Bytes} out
   */
  #turn(lane, out) {
    const { entity, items } = lane;
    for (let room = PIECE_LIMIT; items.length && room > 0; ) {
      const { kind, payload } = items[0];
      const isOwn = (kind === MESSAGE || kind === MESSAGE_PEER) && entity instanceof Channel;
      const account = isOwn ? entity.account : this.#top;
      const left = payload.length - lane.at;
      const amount = Math.min(left, account.credit, PIECE_LIMIT);
      if (left && !amount) {
        account.waiting.add(lane);
        lane.place = account.waiting;
        return;
      }
      account.credit -= amount;
      room -= amount + ITEM_BYTES;
      if (amount < payload.length && !lane.announced) {
        lane.announced = true;
        out.add(head(PARTIAL, TOP, payload.length));
      }
      out.add(head(kind, entity.id, amount));
      out.add(payload.subarray(lane.at, lane.at + amount));
      lane.at += amount;
      if (amount < left) break;
      items.shift();
      lane.at = 0;
      lane.announced = false;
      this.#charge(lane, -payload.length - ITEM_BYTES);
      this.#sent(entity, kind);
    }
    if (items.length) {
      this.#ready.add(lane);
      lane.place = this.#ready;
    }
  }

  /**
   * @param {Lane} lane
   * @param {number} size
   */
  #charge(lane, size) {
    lane.size += size;
    this.waiting += size;
  }
}
