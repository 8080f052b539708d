/**
 * The session of a client with its daemon, over one connection after the other.
 *
 *     away ----- the door has opened a duplex -----> greeting ----- all answered -----> ready
 *       ^                                                |                               |
 *       +------------- a pause, ever longer -------------+-------------------------------+
 *                     the duplex or the link ends; with `reconnect: false` for good
 *
 * Rules (clients/PROTOCOL.md, "Control requests", "Connecting again"):
 * 1. What is wanted (wishes, subscriptions) outlives a connection. The greeting says all of it to a new one first.
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

import { Entry } from "./entry.js";
import * as errors from "./errors.js";
import { Exchanges } from "./exchange.js";
import { Fifo } from "./fifo.js";
import { Inbox } from "./inbox.js";
import { Link } from "./link.js";
import { Notice, Notices, warn } from "./notices.js";
import { buildControl, buildSub, isNumber, isPack, Message, PACKET_LIMIT, parse, unpack } from "./protocol.js";
import { now, Pending, wait } from "./waiting.js";

/** @typedef {import("./link.js").Platform} Platform */
/** @typedef {import("./options.js").Settings} Settings */
/** @typedef {import("./subscription.js").Patience} Patience */

// Bytes of messages that may wait for a program that asks the daemon and receives nothing.
const BACKLOG_LIMIT = 64 * 1024 * 1024;
// Milliseconds before the first and the last attempts to connect again.
const FIRST_PAUSE = 20;
const LAST_PAUSE = 1000;
// The order of the greeting.
const WISHES = ["name", "separator", "format", "pack", "echo/off", "queue", "tap", "heartbeat", "listen"];

export class Session {
  /** @type {Map<string, string>} */
  wishes;
  name = "";
  isConnected = false;
  /** Bytes of a PACK; 0: packing is not agreed, or there is no connection. */
  packLimit = 0;
  /** Messages, ever. */
  published = 0;
  confirmed = 0;
  /** Why there will never be a connection again. @type {errors.BccnError | undefined} */
  over;
  /** @type {Fifo<Entry>} */
  #held = new Fifo();
  /** @type {Fifo<Entry>} */
  #unsent = new Fifo();
  /** @type {Fifo<Entry>} */
  #asked = new Fifo();
  /** @type {Link | undefined} */
  #link;
  /** @type {import("./bpmux/entities.js").Channel | undefined} */
  #bus;
  /** Why the connection has ended. @type {Pending} */
  #ended = new Pending();
  #pressing = 0;
  #inDoubt = 0;
  /** @type {errors.RejectedError | undefined} */
  #rejection;
  #rejections = 0;
  /** Why there is no connection. @type {errors.BccnError} */
  #fault = new errors.UnavailableError("there is no connection to the daemon");
  #life = new AbortController();
  #settings;
  #platform;

  /**
   * @param {Platform} platform
   * @param {Settings} settings
   */
  constructor(platform, settings) {
    this.#platform = platform;
    this.#settings = settings;
    this.wishes = new Map(settings.wishes);
    const notices = new Notices(settings.onNotice ?? warn);
    this.notify = (/** @type {Notice} */ notice) => notices.add(notice);
    this.inbox = new Inbox(settings.separator, () => this.#grant(), this.notify);
    this.exchanges = new Exchanges(platform.random(8), (stream, message) => this.inbox.put(stream, message));
  }

  /** Whether a barrier could have something to say about what was published. */
  get isUnsettled() {
    return this.published !== this.confirmed || this.#inDoubt > 0 || this.#rejections > 0;
  }

  // --- one connection after the other ---

  /**
   * Makes the first connection; later ones follow by themselves.
   * @param {AbortSignal} [signal]
   */
  async open(signal) {
    const abort = () => this.#life.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    try {
      const until = now() + this.#settings.wait;
      for (let pause = FIRST_PAUSE; !(await this.#attempt()); pause = Math.min(2 * pause, LAST_PAUSE)) {
        const jittered = pause * (0.5 + Math.random());
        const isBusy = this.#fault.cause === "busy" && now() + jittered < until + this.#settings.timeout;
        if (!(this.#fault instanceof errors.UnavailableError) || (now() + jittered > until && !isBusy)) throw this.#fault;
        await wait(new Pending(), now() + jittered, this.#life.signal);
      }
    } catch (error) {
      this.close(this.#fault);
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
    this.#goOn();
  }

  /** Connects again, until the client is closed. */
  async #goOn() {
    try {
      for (;;) {
        await wait(this.#ended, Infinity, this.#life.signal);
        if (!this.#settings.reconnect) {
          this.#finish(new errors.UnavailableError("the daemon went away, and the client does not reconnect"));
          return;
        }
        for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LAST_PAUSE)) {
          await wait(new Pending(), now() + pause * (0.5 + Math.random()), this.#life.signal);
          if (await this.#attempt(true)) break;
        }
      }
    } catch (error) {
      if (!this.#life.signal.aborted) throw error;
    }
  }

  /**
   * Whether there is a connection now, with all that is wanted in force; else `#fault` is why not.
   * @param {boolean} [again]
   */
  async #attempt(again = false) {
    const deadline = now() + this.#settings.timeout;
    const attempt = new AbortController();
    const abort = () => attempt.abort(this.#life.signal.reason);
    this.#life.signal.addEventListener("abort", abort);
    const timer = setTimeout(() => attempt.abort(new errors.UnavailableError("the door does not answer")), this.#settings.timeout);
    try {
      this.#life.signal.throwIfAborted();
      if (!this.#link?.isOpen) {
        this.#link = undefined;
        const link = new Link(this.#platform);
        await link.connect(this.#settings.address ?? this.#platform.address(), this.#settings, attempt.signal);
        this.#link = link;
      }
      await this.#greet(this.#link, deadline, attempt.signal, again);
      return true;
    } catch (error) {
      this.#life.signal.throwIfAborted();
      this.#drop();
      if (attempt.signal.aborted) this.#hangUp();
      if (!(error instanceof errors.BccnError)) throw error;
      this.#fault = error;
      return false;
    } finally {
      clearTimeout(timer);
      this.#life.signal.removeEventListener("abort", abort);
    }
  }

  /**
   * @param {Link} link
   * @param {number} deadline
   * @param {AbortSignal} signal
   * @param {boolean} again
   */
  async #greet(link, deadline, signal, again) {
    const ended = (this.#ended = new Pending());
    const bus = link.openDuplex("bus", this.#settings.window, {
      message: (packet) => this.#receive(packet),
      room: () => this.#flush(),
      end: (error) => {
        if (this.#bus === bus) this.#disconnected(error ?? new errors.UnavailableError("the daemon went away"));
        ended.finish(error ?? new errors.UnavailableError("the daemon went away"));
      },
    });
    this.#bus = bus;
    const wanted = WISHES.filter((key) => this.wishes.has(key));
    const greeting = wanted.map((key) => new Entry([buildControl(key, this.wishes.get(key))], { key }));
    const subs = [...this.inbox.subscriptions].filter((each) => !each.isPending).map((each) => buildSub("SUB", each.pattern));
    const last = new Entry([...subs, buildControl("whoami")], { key: "whoami" });
    this.#unsent = new Fifo([...greeting, last]);
    ended.wakers.add(() => last.wake());
    this.#pressing++;
    try {
      this.#flush();
      while (!last.done && !ended.done) await wait(last, deadline, signal);
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
    this.inbox.isTap = greeting.some((each) => each.expected === "tap" && !each.error);
    this.isConnected = true;
    if (again) this.notify(new Notice("reconnected", "connected to the daemon again"));
    for (const each of complaints) this.notify(new Notice("rejected", each.message, 1, each));
    [this.#unsent, this.#held] = [this.#held, this.#unsent];
    for (const entry of this.#unsent) {
      // The greeting has said all but a SUB that is to go before a request.
      entry.sent = entry.isSub ? 0 : Math.max(0, entry.packets.length - 1);
    }
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
    const doubt = this.published - this.confirmed;
    this.#drop();
    if (!wasConnected) return;
    this.#held = new Fifo(waiting.filter((entry) => !entry.done));
    this.#inDoubt += doubt;
    this.#fault = new errors.UnavailableError(error.message);
    if (!this.over) this.notify(new Notice("disconnected", error.message, doubt));
  }

  /** Lets go of the duplex, if there is one. */
  #drop() {
    const bus = this.#bus;
    this.#bus = undefined;
    if (bus) this.#link?.leave(bus);
    this.isConnected = false;
    this.packLimit = 0;
    this.inbox.withdrawn.clear(); // a new connection knows nothing of it
    this.confirmed = this.published;
    this.#asked.clear();
    this.#unsent.clear();
  }

  #hangUp() {
    this.#link?.close();
    this.#link = undefined;
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
    this.#hangUp();
    for (const entry of waiting) entry.finish(why);
    this.#life.abort(why);
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
      this.confirmed = Math.max(this.confirmed, asked.published);
      asked.value = value;
      if (!asked.error) asked.granted?.(value);
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
      this.#rejection ??= error;
      this.#rejections++;
      this.notify(new Notice("rejected", error.message, 1, error));
    }
  }

  /** Throws what a barrier has found: what is not on the bus, or may not be. */
  throwRejections() {
    const [rejection, count, doubt] = [this.#rejection, this.#rejections, this.#inDoubt];
    [this.#rejection, this.#rejections, this.#inDoubt] = [undefined, 0, 0];
    if (rejection && count > 1) throw errors.rejected(`${rejection.code} ${rejection.text}; ${count - 1} more rejected`);
    if (rejection) throw rejection;
    if (doubt) {
      throw new errors.UnconfirmedError(`the daemon went away: up to ${doubt} messages may not have been published`);
    }
  }

  /** Gives the daemon as much credit as may come. */
  #grant() {
    if (!this.#bus || !this.#link?.isOpen) return;
    const { waiting } = this.inbox;
    const isPressed = this.#pressing > 0 && waiting <= BACKLOG_LIMIT;
    this.#link.hold(this.#bus, isPressed ? 0 : Math.min(waiting, this.#settings.window));
  }

  // --- what goes ---

  /** Sends what is queued, as far as there is room. */
  #flush() {
    for (let entry; this.#bus && (entry = this.#unsent.first); ) {
      for (; entry.sent < entry.packets.length; entry.sent++) {
        if (!this.#link?.send(this.#bus, entry.packets[entry.sent])) return;
      }
      this.#unsent.shift();
      this.published += entry.messages;
      entry.published = this.published;
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
      if (this.isConnected && this.#bus && !this.#unsent.length && this.#link?.send(this.#bus, packet)) {
        this.published += messages;
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
      if (!entry.sent) (this.isConnected ? this.#unsent : this.#held).remove(entry);
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
    if (!this.isConnected) return new errors.UnavailableError(this.#fault.message, { cause: this.#fault });
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
