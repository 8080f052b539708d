/**
 * A connection to the door, for as long as it stands: a carrier of bytes with a side of bpmux on it (clients/BPMUX.md,
 * "Sessions"). What it carries is duplexes to the daemon, streams and requests.
 *
 * What is to be sent goes at the end of a turn of the event loop: all that a program publishes in one turn shares the
 * writes of it.
 */

import { Endpoint } from "./bpmux/endpoint.js";
import { BpmuxError } from "./bpmux/errors.js";
import { ITEM_BYTES, PIECE_LIMIT } from "./bpmux/limits.js";
import { BccnError, ProtocolError, rejected, UnavailableError } from "./errors.js";
import { decoded, encoded } from "./protocol.js";
import { now } from "./waiting.js";

/** @typedef {import("./bpmux/entities.js").Channel} Channel */
/** @typedef {import("./bpmux/entities.js").Request} Request */

/**
 * Bytes in order. `write` returns whether there is room for more; `close` lets what was written go first.
 * @typedef {{write(data: Uint8Array): boolean, pause(): void, resume(): void, close(): void, destroy(): void}} Carrier
 */
/**
 * What a carrier reports: `drain` after `write` said that there is no room, `end` once, whatever ended it.
 * @typedef {{data(data: Uint8Array): void, drain(): void, end(error?: Error): void}} Taker
 */
/**
 * Where the client runs: how it reaches addresses, and the end of a turn.
 * @typedef {object} Platform
 * @property {() => string} address  the usual one
 * @property {(address: string, options: any, taker: Taker, signal: AbortSignal) => Promise<Carrier>} open
 * @property {(turn: () => void) => void} soon
 * @property {(size: number) => Uint8Array} random
 */
/**
 * Who uses a channel or a request of a link: `message`s come, there may be `room` to send, and once it has an `end`.
 * @typedef {{message(payload: Uint8Array): void, room?(): void, end(error: Error | null): void}} User
 */

// Bytes of acknowledgements that wait for the door to read: then nothing more is read from it.
const REPLIES_LIMIT = 64 * 1024;
// Bytes that are sent before the turn is over.
const FLUSH_AT = 64 * 1024;
const UNKNOWN = encoded("unsupported: a client of the bus serves nothing here");

export class Link {
  isOpen = true;
  /** @type {Carrier | undefined} */
  #carrier;
  #endpoint = new Endpoint(now());
  /** @type {Map<Channel | Request, User>} */
  #users = new Map();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #hasRoom = true;
  #isPaused = false;
  #goesSoon = false;
  /** Why the door closes the connection. */
  #farewell = "";
  #platform;

  /** @param {Platform} platform */
  constructor(platform) {
    this.#platform = platform;
  }

  /**
   * @param {string} address
   * @param {any} options
   * @param {AbortSignal} signal
   */
  async connect(address, options, signal) {
    /** @type {Taker} */
    const taker = {
      data: (data) => this.#receive(data),
      drain: () => this.#drained(),
      end: (error) =>
        this.#end(error instanceof BccnError ? error : new UnavailableError("the door went away", { cause: error })),
    };
    this.#carrier = await this.#platform.open(address, options, taker, signal);
    this.#arm();
    this.#flush();
  }

  // --- what it carries ---

  /**
   * @param {string} payload
   * @param {number} window
   * @param {User} user
   */
  openDuplex(payload, window, user) {
    return this.#begin(this.#endpoint.openDuplex(encoded(payload), window), user);
  }

  /**
   * @param {string} payload
   * @param {number} window
   * @param {User} user
   */
  openStream(payload, window, user) {
    return this.#begin(this.#endpoint.openStream(encoded(payload), window), user);
  }

  /**
   * @param {string} payload
   * @param {User} user
   */
  request(payload, user) {
    return this.#begin(this.#endpoint.request(encoded(payload)), user);
  }

  /**
   * @template {Channel | Request} T
   * @param {T | null} entity
   * @param {User} user
   */
  #begin(entity, user) {
    if (entity === null) throw new UnavailableError("too much is open on this connection");
    this.#users.set(entity, user);
    this.#flushSoon();
    return entity;
  }

  /**
   * Hands over one message if the door has given credit for it, and the carrier has room. A long one may begin with
   * less credit than it needs: the rest is granted as it comes.
   * @param {Channel} channel
   * @param {Uint8Array} payload
   */
  send(channel, payload) {
    const { lane, account } = channel;
    const queued = lane.size - lane.items.length * ITEM_BYTES;
    const room = account.credit - queued + lane.at;
    if (!this.isOpen || !this.#hasRoom || room < Math.min(payload.length, PIECE_LIMIT)) return false;
    if (!this.#endpoint.send(channel, payload)) return false;
    if (queued + payload.length >= FLUSH_AT) this.#flush();
    else this.#flushSoon();
    return true;
  }

  /**
   * The program holds so many bytes of what came on a channel: what its window grants is less by them.
   * @param {Channel} channel
   * @param {number} size
   */
  hold(channel, size) {
    this.#endpoint.hold(channel, size);
    if (this.#endpoint.replies) this.#flushSoon();
  }

  /**
   * Its user wants no more of it, and hears no more.
   * @param {Channel | Request} entity
   */
  leave(entity) {
    if (!this.#users.delete(entity) || !this.isOpen) return;
    this.#giveUp(entity);
    this.#flushSoon();
  }

  /**
   * Ends whatever of it has not ended.
   * @param {Channel | Request} entity
   * @param {Uint8Array} [reason]
   */
  #giveUp(entity, reason) {
    if (!("receiving" in entity)) {
      if (entity.ours) this.#endpoint.cancel(entity, reason);
      else this.#endpoint.close(entity, reason);
      return;
    }
    if (entity.sending !== "absent") this.#endpoint.close(entity, reason);
    if (entity.receiving !== "absent") this.#endpoint.cancel(entity, reason);
  }

  /** Ends the connection at once; what was handed over goes first. */
  close() {
    if (!this.isOpen) return;
    this.#flush();
    this.#carrier?.close();
    this.#end(new UnavailableError("the connection is closed"));
  }

  // --- bytes ---

  /** @param {Uint8Array} data */
  #receive(data) {
    if (!this.isOpen) return;
    try {
      this.#take(this.#endpoint.receive(data, now()));
    } catch (error) {
      if (!(error instanceof BpmuxError)) throw error;
      this.#take(this.#endpoint.events()); // what came before it
      this.#end(new ProtocolError(`what answers there does not speak bpmux: ${error.message}`));
      return;
    }
    for (const user of [...this.#users.values()]) user.room?.();
    this.#flush();
  }

  /** @param {import("./bpmux/endpoint.js").Event[]} events */
  #take(events) {
    for (const { type, of, payload } of events) {
      const user = this.#users.get(of);
      switch (type) {
        case "message":
          user?.message(payload);
          break;
        case "responded":
          this.#users.delete(of);
          user?.message(payload);
          user?.end(null);
          break;
        case "opened":
        case "requested":
          this.#giveUp(of, UNKNOWN);
          break;
        case "finished":
          this.#end(errorOf(this.#farewell) ?? new UnavailableError("the door has closed the connection"));
          break;
        case "silent":
          this.#end(new UnavailableError("the door does not answer"));
          break;
        case "closed":
        case "cancelled":
        case "refused":
          this.#over(of, payload);
      }
    }
  }

  /**
   * The door has ended something: the user hears why, and the rest of it ends, too.
   * @param {Channel | Request} of
   * @param {Uint8Array} payload  empty, or `<code> <text>`
   */
  #over(of, payload) {
    const user = this.#users.get(of);
    this.leave(of);
    if (of === this.#endpoint.top) {
      this.#farewell ||= decoded(payload);
      this.#giveUp(of);
      return;
    }
    user?.end(errorOf(decoded(payload)));
  }

  /** Sends what may be sent. */
  #flush() {
    while (this.isOpen && this.#carrier && this.#hasRoom) {
      const data = this.#endpoint.dataToSend();
      if (!data.length) break;
      this.#hasRoom = this.#carrier.write(data);
    }
    this.#take(this.#endpoint.events());
    const mustWait = this.#endpoint.replies > REPLIES_LIMIT;
    if (mustWait !== this.#isPaused) {
      this.#isPaused = mustWait;
      if (mustWait) this.#carrier?.pause();
      else this.#carrier?.resume();
    }
  }

  #flushSoon() {
    if (this.#goesSoon || !this.isOpen) return;
    this.#goesSoon = true;
    this.#platform.soon(() => {
      this.#goesSoon = false;
      this.#flush();
    });
  }

  #drained() {
    this.#hasRoom = true;
    this.#flush();
    for (const user of [...this.#users.values()]) user.room?.();
  }

  #arm() {
    if (!this.isOpen) return;
    const left = Math.max(0, this.#endpoint.deadline - now());
    this.#timer = setTimeout(() => {
      this.#take(this.#endpoint.expire(now()));
      this.#flush();
      this.#arm();
    }, left);
  }

  /** @param {Error} error */
  #end(error) {
    if (!this.isOpen) return;
    this.isOpen = false;
    clearTimeout(this.#timer);
    if (this.#carrier && !(error instanceof UnavailableError)) this.#carrier.destroy();
    else this.#carrier?.close();
    const users = [...this.#users.values()];
    this.#users.clear();
    for (const user of users) user.end(error);
  }
}

/**
 * What the reason of a Close or a Cancel says; null for a normal end.
 * @param {string} reason  empty, `<code> <text>`, or `limit: <text>`
 */
function errorOf(reason) {
  if (!reason) return null;
  if (/^(refused|unknown-key|bad-[a-z]+|limit:) /.test(reason)) return rejected(reason.replace(/^limit: /, "limit "));
  return new UnavailableError(reason.replace(/^unavailable /, ""));
}
