/**
 * Channels and requests, and how each way of one ends (clients/BPMUX.md, "How a way ends").
 *
 * A channel has a way for what we send, a way for what we receive, or both. The table is the same for a sender that
 * closes and a receiver that cancels. An id is free once both ways of its channel are over: since chunks arrive in
 * order, the peer has then come to the same conclusion before it can see the id again. A request has one way, that of
 * its response: whoever asked may cancel it, whoever was asked may close it.
 */

import { DUPLEX, NAMES, SINK, STREAM, TOP } from "./chunks.js";
import { BpmuxError } from "./errors.js";

/**
 * The state of one way. `absent`: there is none.
 * @typedef {"absent" | "open" | "leaving" | "left" | "crossed" | "over"} State
 */
/**
 * What happens to a way: `leave`, we end it; `sent`, our Close or Cancel is on its way; `peer`, the peer ends it.
 * @typedef {"leave" | "sent" | "peer" | "acknowledged"} Step
 */

/** @type {Record<State, Partial<Record<Step, State>>>} */
const NEXT = {
  absent: {},
  open: { leave: "leaving", peer: "over" },
  leaving: { sent: "left", peer: "over" },
  left: { peer: "crossed", acknowledged: "over" },
  crossed: { acknowledged: "over" },
  over: {},
};

/**
 * Throws for what the peer cannot have meant.
 * @param {State} state
 * @param {Step} step
 */
export function after(state, step) {
  const following = NEXT[state][step];
  if (following === undefined) throw new BpmuxError("state", `${step} in the state ${state}`);
  return following;
}

/**
 * Whether the peer may still say something on a way.
 * @param {State} state
 */
export const isHeard = (state) => state === "open" || state === "leaving" || state === "left";

/**
 * Whether we still have something to say on it.
 * @param {State} state
 */
export const isSaid = (state) => state === "open" || state === "leaving";

/** Credit that the peer has given, and the lanes that wait for more of it, in turn. */
export class Account {
  /** All of it, up to what a number holds exactly. */
  credit = 0;
  /** What is beyond that: nearly all peers give none. */
  beyond = 0n;
  /** @type {Set<Lane>} */
  waiting = new Set();
}

/** Payloads that go out one behind the other. */
export class Lane {
  /** @type {{kind: number, payload: Uint8Array}[]} */
  items = [];
  /** How much of the first is sent. */
  at = 0;
  /** Whether its total is. */
  announced = false;
  /** Bytes that wait, with ITEM_BYTES for each. */
  size = 0;
  /**
   * Where the lane waits for its turn or for credit; null if it has nothing to send.
   * @type {Set<Lane> | null}
   */
  place = null;

  /** @param {Channel | Request} entity */
  constructor(entity) {
    this.entity = entity;
  }
}

/** A sink, stream or duplex. Opaque to programs, but for `credit`, `held` and `account`, which they may read. */
export class Channel {
  isOpen = false;
  isRefused = false;
  /** `send` took no more, and `writable` is to come. */
  isFull = false;
  /** @type {State} */
  sending = "absent";
  /** @type {State} */
  receiving = "absent";
  account = new Account();
  lane = new Lane(this);
  cancelling = new Lane(this);
  /** What the peer may still send. */
  credit = 0;
  /** What it is to have, less what is held; 0: the program grants by itself. */
  window = 0;
  /** Bytes of messages that the program has not consumed. */
  held = 0;
  /** A grant that waits for the opening. */
  pending = 0;

  /**
   * @param {number} id
   * @param {number} kind
   * @param {boolean} ours  this side opened it
   */
  constructor(id, kind, ours) {
    this.id = id;
    this.kind = kind;
    this.ours = ours;
    if (kind === DUPLEX || (kind === SINK) === ours) this.sending = "open";
    if (kind === DUPLEX || (kind === STREAM) === ours) this.receiving = "open";
  }

  toString() {
    return this.id === TOP ? "the top level" : `${NAMES[this.kind]} ${this.id} of ${this.ours ? "ours" : "the peer"}`;
  }

  get isOver() {
    return [this.sending, this.receiving].every((state) => state === "absent" || state === "over");
  }
}

/** `answered`: the response is queued, or has come while our Cancel, which is then finished, was under way. */
export class Request {
  isOpen = false;
  isRefused = false;
  answered = false;
  /** @type {State} */
  state = "open";
  lane = new Lane(this);

  /**
   * @param {number} id
   * @param {boolean} ours  this side waits for the response
   */
  constructor(id, ours) {
    this.id = id;
    this.ours = ours;
  }

  toString() {
    return `request ${this.id} of ${this.ours ? "ours" : "the peer"}`;
  }

  get isOver() {
    return this.state === "over";
  }
}

/** The lowest id that is free goes first, so that ids stay narrow. */
class Ids {
  /** @type {number[]} descending */
  #free = [];
  #next = 0;

  take() {
    return this.#free.pop() ?? this.#next++;
  }

  /** @param {number} id */
  giveBack(id) {
    let low = 0;
    for (let high = this.#free.length; low < high; ) {
      const middle = (low + high) >> 1;
      if (this.#free[middle] > id) low = middle + 1;
      else high = middle;
    }
    this.#free.splice(low, 0, id);
  }
}

/** What there is on a connection, by who opened it. Whatever is over is in none of the tables. */
export class Tables {
  top = new Channel(TOP, DUPLEX, true);
  /** @type {Map<number, Channel>} */
  ours = new Map();
  /** @type {Map<number, Channel>} */
  theirs = new Map();
  /** By us. @type {Map<number, Request>} */
  asked = new Map();
  /** By the peer. @type {Map<number, Request>} */
  requests = new Map();
  refused = 0;
  #channelIds = new Ids();
  #requestIds = new Ids();

  constructor() {
    this.top.isOpen = true;
  }

  /** @param {number} kind */
  newChannel(kind) {
    const channel = new Channel(this.#channelIds.take(), kind, true);
    this.ours.set(channel.id, channel);
    return channel;
  }

  newRequest() {
    const request = new Request(this.#requestIds.take(), true);
    this.asked.set(request.id, request);
    return request;
  }

  /** @param {Channel | Request} entity */
  remove(entity) {
    if (entity instanceof Channel) (entity.ours ? this.ours : this.theirs).delete(entity.id);
    else (entity.ours ? this.asked : this.requests).delete(entity.id);
    this.refused -= Number(entity.isRefused);
    if (entity.ours) (entity instanceof Channel ? this.#channelIds : this.#requestIds).giveBack(entity.id);
  }
}
