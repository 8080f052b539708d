/**
 * The session of a client with its daemon, over one connection after the other.
 *
 *     away ----- the door has opened a duplex -----> greeting ----- all answered -----> ready
 *       ^                                                |                               |
 *       +------------- a pause, ever longer -------------+-------------------------------+
 *                     the duplex or the link ends; with `reconnect: false` for good
 *
 * Rules (clients/PROTOCOL.md, "Control requests", "Connecting again"):
 * 1. What is wanted (wishes, watches, subscriptions) outlives a connection. The greeting says all of it to a new one first.
 * 2. All else is `held` until then, and `unsent` until there is room. Answers come in the order of the requests: `asked`
 *    is a queue, too. A complaint about a SUB or UNSUB belongs to the request sent after it.
 * 3. What was published is with the daemon once a later request is answered; else it is in doubt when the connection
 *    breaks, and the next barrier says so.
 * 4. What a connection did not answer is asked again on the next one, but for an UNSUB, which the greeting makes
 *    needless; unsent messages wait.
 * 5. The daemon gets credit for less, the more waits for the program, and none once a window of it waits. While a call
 *    waits for the daemon it gets credit all the same, up to BACKLOG_LIMIT: otherwise two programs that wait for each
 *    other would wait for ever.
 */

import { Connector } from "./connector.js";
import { Entry } from "./entry.js";
import * as errors from "./errors.js";
import { Exchanges } from "./exchange.js";
import { Fifo } from "./fifo.js";
import { Inbox } from "./inbox.js";
import { Ledger } from "./ledger.js";
import { Notice, Notices, warn } from "./notices.js";
import { buildControl, buildSub, isNumber, isPack, Message, PACKET_LIMIT, parse, unpack } from "./protocol.js";
import { now, Pending, wait } from "./waiting.js";
import { Watches } from "./watches.js";

/** @typedef {import("./options.js").Settings} Settings */
/** @typedef {import("./subscription.js").Patience} Patience */

// Bytes of messages that may wait for a program that asks the daemon and receives nothing.
const BACKLOG_LIMIT = 64 * 1024 * 1024;
const AWAY = "the daemon went away";
const FOR_GOOD = "the daemon went away, and the client does not reconnect";
// The order of the greeting.
const WISHES = ["name", "separator", "format", "pack", "echo/off", "queue", "tap", "heartbeat", "listen"];

export class Session {
  /** @type {Map<string, string>} */
  wishes;
  name = "";
  isConnected = false;
  /** Bytes of a PACK; 0: packing is not agreed, or there is no connection. */
  packLimit = 0;
  ledger = new Ledger();
  watches = new Watches(() => this.over !== undefined);
  /** Why there will never be a connection again. @type {errors.BccnError | undefined} */
  over;
  /** @type {Fifo<Entry>} */
  #held = new Fifo();
  /** @type {Fifo<Entry>} */
  #unsent = new Fifo();
  /** @type {Fifo<Entry>} */
  #asked = new Fifo();
  /** To the door. @type {import("./link.js").Link | undefined} */
  link;
  /** @type {import("./bpmux/entities.js").Channel | undefined} */
  #bus;
  /** Why the connection has ended. @type {Pending} */
  #ended = new Pending();
  #pressing = 0;
  #settings;
  #connector;

  /**
   * @param {import("./link.js").Platform} platform
   * @param {Settings} settings
   */
  constructor(platform, settings) {
    this.#settings = settings;
    this.#connector = new Connector(platform, settings, (...how) => this.#greet(...how));
    this.wishes = new Map(settings.wishes);
    const notices = new Notices(settings.onNotice ?? warn);
    this.notify = (/** @type {Notice} */ notice) => notices.add(notice);
    this.inbox = new Inbox(settings.separator, () => this.#grant(), this.notify);
    this.exchanges = new Exchanges(platform.random(8), (stream, message) => this.inbox.put(stream, message));
  }

  // --- one connection after the other ---

  /**
   * Makes the first connection; later ones follow by themselves.
   * @param {AbortSignal} [signal]
   */
  async open(signal) {
    try {
      await this.#connector.first(signal);
    } catch (error) {
      this.close();
      throw error;
    }
    this.#connector.goOn(() => this.#ended).then(() => this.close(new errors.UnavailableError(FOR_GOOD)), () => {});
  }

  /**
   * Opens a duplex to the daemon, and says all that is wanted. Throws if it cannot be, and leaves nothing then.
   * @param {import("./link.js").Link} link
   * @param {AbortSignal} signal
   * @param {boolean} again
   */
  async #greet(link, signal, again) {
    const ended = (this.#ended = new Pending());
    const bus = link.openDuplex("bus", this.#settings.window, {
      message: (packet) => this.#receive(packet),
      room: () => this.#flush(),
      end: (error) => {
        if (this.#bus === bus) this.#disconnected(error ?? new errors.UnavailableError(AWAY));
        ended.finish(error ?? new errors.UnavailableError(AWAY));
      },
    });
    [this.link, this.#bus] = [link, bus];
    try {
      await this.#introduce(ended, signal, again);
    } catch (error) {
      this.#drop();
      throw error;
    }
  }

  /**
   * @param {Pending} ended
   * @param {AbortSignal} signal
   * @param {boolean} again
   */
  async #introduce(ended, signal, again) {
    // The greeting says all but a SUB that is to go before a request. What ends something later has to be said.
    this.#held = new Fifo([...this.#held].filter((entry) => !entry.done));
    for (const entry of this.#held) entry.sent = entry.isSub ? 0 : Math.max(0, entry.packets.length - 1);
    const wanted = WISHES.filter((key) => this.wishes.has(key));
    const wishes = wanted.map((key) => new Entry([buildControl(key, this.wishes.get(key))], { key }));
    const greeting = [...wishes, ...this.watches.entries()];
    for (const each of greeting) if (each.expected === "tap") each.granted = () => void (this.inbox.isTap = true);
    const subs = [...this.inbox.subscriptions].filter((each) => !each.isPending).map((each) => buildSub("SUB", each.pattern));
    const last = new Entry([...subs, buildControl("whoami")], { key: "whoami" });
    this.#unsent = new Fifo([...greeting, last]);
    ended.wakers.add(() => last.wake());
    this.#pressing++;
    try {
      this.#flush();
      while (!last.done && !ended.done) await wait(last, Infinity, signal);
    } finally {
      this.#pressing--;
    }
    if (ended.done) throw ended.error;
    const complaints = [...greeting, last].flatMap((each) => (each.error ? [each.error] : []));
    // Our old connection may hold our name a little longer.
    const isTaken = complaints.some((each) => "code" in each && each.code === "name-taken");
    if (complaints.length && !again) throw complaints[0];
    if (isTaken) throw new errors.UnavailableError(`${complaints[0].message}`);
    this.#connected(greeting, last.value, again, complaints);
  }

  /**
   * @param {Entry[]} greeting
   * @param {string} name
   * @param {boolean} again
   * @param {Error[]} complaints
   */
  #connected(greeting, name, again, complaints) {
    this.name = name;
    const [state, limit] = (greeting.find((each) => each.expected === "pack")?.value ?? "").split(" ");
    this.packLimit = state === "on" && isNumber(limit ?? "") ? Math.min(Number(limit), PACKET_LIMIT) : 0;
    this.isConnected = true;
    if (again) this.notify(new Notice("reconnected", "connected to the daemon again"));
    for (const each of complaints) this.notify(new Notice("rejected", each.message, 1, each));
    [this.#unsent, this.#held] = [this.#held, this.#unsent];
    this.#flush();
    this.#grant();
  }

  /**
   * A connection that was greeted has ended.
   * @param {Error} error
   */
  #disconnected(error) {
    const wasConnected = this.isConnected;
    const waiting = [...this.#asked, ...this.#unsent];
    const doubt = this.ledger.break();
    this.#drop();
    if (!wasConnected) return;
    this.#held = new Fifo(waiting.filter((entry) => !entry.done));
    this.#connector.fault = new errors.UnavailableError(error.message);
    if (!this.over) this.notify(new Notice("disconnected", error.message, doubt));
  }

  /** Lets go of the duplex, if there is one. */
  #drop() {
    const bus = this.#bus;
    this.#bus = undefined;
    if (bus) this.link?.leave(bus);
    this.isConnected = this.inbox.isTap = false;
    this.packLimit = 0;
    this.inbox.withdrawn.clear(); // a new connection knows nothing of it
    this.#asked.clear();
    this.#unsent.clear();
  }

  /**
   * Lets go of the connection at once, for good.
   * @param {errors.BccnError} [why]
   */
  close(why = new errors.ClosedError("the client is closed")) {
    if (this.over instanceof errors.ClosedError) return;
    const waiting = [...this.#held, ...this.#asked, ...this.#unsent];
    this.#finish(why);
    this.#drop();
    this.#connector.close(why);
    for (const entry of waiting) entry.finish(why);
  }

  /** @param {errors.BccnError} why */
  #finish(why) {
    this.over = why;
    for (const entry of this.#held) entry.finish(why);
    this.#held.clear();
    for (const { stream } of [this.inbox, ...this.inbox.subscriptions]) stream.wake();
    this.inbox.listener?.stream.wake();
    this.exchanges.wake();
  }

  // --- what comes ---

  /** @param {Uint8Array} packet */
  #receive(packet) {
    try {
      if (isPack(packet)) unpack(packet, (each) => this.#take(each));
      else this.#take(packet);
    } catch (error) {
      if (!(error instanceof errors.ProtocolError)) throw error;
      const ended = this.#ended;
      this.#disconnected(error);
      ended.finish(error);
    }
    this.#grant();
  }

  /** @param {Uint8Array} packet */
  #take(packet) {
    const said = parse(packet, this.#channel);
    if (!(said instanceof Message)) {
      this.#control(said.key, said.value);
      return;
    }
    if (said.channel.startsWith("!") && this.exchanges.take(said)) return;
    this.#channel = said.channel;
    this.inbox.deliver(said);
  }

  /** Of the last message: messages of one channel share the text of it. */
  #channel = "";

  /**
   * @param {string} key
   * @param {string} value
   */
  #control(key, value) {
    const asked = this.#asked.first;
    if (key === "wanted") this.watches.hear(value);
    if (key === "error") {
      this.#complain(errors.rejected(value));
    } else if (key === "dropped" && isNumber(value)) {
      this.inbox.miss(Number(value));
      this.notify(new Notice("lost", `${value} lost: messages came faster than they were read`, Number(value)));
    } else if (key === "revoked") {
      if (value === "CMSG tap") this.inbox.isTap = false;
      this.notify(new Notice("revoked", `no longer allowed: ${value}`, 1));
    } else if (key === "closing") {
      this.notify(new Notice("closing", `the daemon closes the connection: ${value}`));
    } else if (asked?.expected === key) {
      this.#asked.shift();
      this.ledger.confirm(asked.published);
      asked.value = value;
      if (!asked.error && !asked.done) asked.granted?.(value); // nobody wants what was given up
      asked.finish();
    } // Others are news of a newer daemon.
  }

  /** @param {errors.RejectedError} error */
  #complain(error) {
    const asked = this.#asked.first ?? this.#unsent.first; // a SUB may have left before its request
    if (error.text.startsWith("CMSG ") && this.#asked.length) {
      this.#asked.shift()?.finish(error);
    } else if (/^(UN)?SUB /.test(error.text) && asked) {
      asked.error ??= error;
    } else if (!this.exchanges.blame(error)) {
      this.ledger.reject(error);
      this.notify(new Notice("rejected", error.message, 1, error));
    }
  }

  /** Gives the daemon as much credit as may come. */
  #grant() {
    if (!this.#bus || !this.link?.isOpen) return;
    const { waiting } = this.inbox;
    const isPressed = this.#pressing > 0 && waiting <= BACKLOG_LIMIT;
    this.link.hold(this.#bus, isPressed ? 0 : Math.min(waiting, this.#settings.window));
  }

  // --- what goes ---

  /** Sends what is queued, as far as there is room. */
  #flush() {
    for (let entry; this.#bus && (entry = this.#unsent.first); ) {
      for (; entry.sent < entry.packets.length; entry.sent++) {
        if (!this.link?.send(this.#bus, entry.packets[entry.sent])) return;
      }
      this.#unsent.shift();
      this.ledger.published += entry.messages;
      entry.published = this.ledger.published;
      if (entry.expected) this.#asked.push(entry);
      else entry.finish();
    }
  }

  /**
   * Publishes packets with so many messages in each: at once if there is room, or in its turn.
   * @param {{packet: Uint8Array, messages: number}[]} all
   * @param {Patience} [patience]
   */
  async transmit(all, patience) {
    for (const { packet, messages } of all) {
      if (this.over) throw this.over;
      patience?.signal?.throwIfAborted();
      if (this.isConnected && this.#bus && !this.#unsent.length && this.link?.send(this.#bus, packet)) {
        this.ledger.published += messages;
      } else {
        await this.deliver(new Entry([packet], { messages }), patience);
      }
    }
  }

  /**
   * Makes a control request; returns its answer.
   * @param {string} key
   * @param {string} [value]
   * @param {Patience & {granted?: (value: string) => void}} [how]
   */
  async ask(key, value, how) {
    const entry = new Entry([buildControl(key, value)], { key });
    entry.granted = how?.granted;
    return this.deliver(entry, how);
  }

  /**
   * Sends an entry, in its turn, and waits until it is done. Throws what the daemon had against it.
   * @param {Entry} entry
   * @param {Patience} [patience]
   */
  async deliver(entry, { timeout = this.#settings.timeout, signal } = {}) {
    if (this.over) throw this.over;
    signal?.throwIfAborted();
    if (entry.packets.some((packet) => packet.length > PACKET_LIMIT)) {
      throw new errors.RejectedError("too-large", `packet: more than ${PACKET_LIMIT} bytes`);
    }
    if (entry.expected && this.inbox.waiting > BACKLOG_LIMIT) {
      throw new errors.BacklogError(`${this.inbox.waiting} bytes of messages wait: receive them`);
    }
    this.post(entry);
    try {
      return await this.settle(entry, { timeout, signal });
    } catch (error) {
      entry.done = true; // for nobody: it is neither sent any more nor asked again
      if (!entry.sent || !this.isConnected) (this.isConnected ? this.#unsent : this.#held).remove(entry);
      throw error;
    }
  }

  /**
   * Waits until an entry is done; returns its answer.
   * @param {Entry} entry
   * @param {Patience} [patience]
   */
  async settle(entry, { timeout = this.#settings.timeout, signal } = {}) {
    await this.pressing(() => wait(entry, now() + timeout, signal));
    if (!entry.done) throw this.#whyNot(entry);
    if (entry.error) throw entry.error;
    return entry.value;
  }

  /**
   * Sends an entry, in its turn, for which nobody waits.
   * @param {Entry} entry
   */
  post(entry) {
    (this.isConnected ? this.#unsent : this.#held).push(entry);
    if (this.isConnected) this.#flush();
  }

  /** @param {Entry} entry */
  #whyNot(entry) {
    const { fault } = this.#connector;
    if (!this.isConnected) return new errors.UnavailableError(fault.message, { cause: fault });
    const isUnsent = entry.sent < entry.packets.length;
    return new errors.TimedOutError(isUnsent ? "not sent: the daemon takes no more" : "the daemon does not answer");
  }

  /** Waits for a connection. @param {Patience} [patience] */
  async available(patience) {
    if (!this.isConnected) await this.deliver(new Entry([], {}), patience);
  }

  /** The program waits for something of the daemon meanwhile, so it reads on. @template T @param {() => Promise<T>} work */
  async pressing(work) {
    this.#pressing++;
    this.#grant();
    try {
      return await work();
    } finally {
      this.#pressing--;
      this.#grant();
    }
  }
}
