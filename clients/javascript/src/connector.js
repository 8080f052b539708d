/**
 * Makes connections, one after the other: a link to the door, and on it whatever `greet` makes of it. A link that still
 * stands is used again, as it is the daemon behind the door that goes most often.
 */

import { BccnError, UnavailableError } from "./errors.js";
import { Link } from "./link.js";
import { now, Pending, wait } from "./waiting.js";

/** @typedef {import("./link.js").Platform} Platform */
/** @typedef {import("./options.js").Settings} Settings */
/** @typedef {(link: Link, signal: AbortSignal, again: boolean) => Promise<void>} Greet  throws if it is in vain */

// Milliseconds before the first and the last attempts to connect again.
const FIRST_PAUSE = 20;
const LAST_PAUSE = 1000;

export class Connector {
  /** Why there is no connection. @type {BccnError} */
  fault = new UnavailableError("there is no connection to the daemon");
  /** @type {Link | undefined} */
  #link;
  #life = new AbortController();
  #platform;
  #settings;
  #greet;

  /**
   * @param {Platform} platform
   * @param {Settings} settings
   * @param {Greet} greet
   */
  constructor(platform, settings, greet) {
    this.#platform = platform;
    this.#settings = settings;
    this.#greet = greet;
  }

  /**
   * The first connection. Where nobody is, it tries for the option `wait`; where somebody is busy, for `timeout`.
   * @param {AbortSignal} [signal]
   */
  async first(signal) {
    const abort = () => this.#life.abort(signal?.reason);
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort);
    const until = now() + this.#settings.wait;
    try {
      for (let pause = FIRST_PAUSE; !(await this.#attempt(false)); pause = Math.min(2 * pause, LAST_PAUSE)) {
        const next = now() + jittered(pause);
        const isBusy = this.fault.cause === "busy" && next < until + this.#settings.timeout;
        if (!mayPass(this.fault) || (next > until && !isBusy)) throw this.fault;
        await wait(new Pending(), next, this.#life.signal);
      }
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /**
   * Connects again whenever the connection has ended, until `close`, which it throws. Without the option `reconnect` it
   * returns when the first one has ended.
   * @param {() => Pending} ended  of the connection that there is
   */
  async goOn(ended) {
    for (;;) {
      await wait(ended(), Infinity, this.#life.signal);
      if (!this.#settings.reconnect) return;
      for (let pause = FIRST_PAUSE; ; pause = Math.min(2 * pause, LAST_PAUSE)) {
        await wait(new Pending(), now() + jittered(pause), this.#life.signal);
        if (await this.#attempt(true)) break;
      }
    }
  }

  /**
   * Whether there is a connection now; else `fault` is why not.
   * @param {boolean} again
   */
  async #attempt(again) {
    const life = this.#life.signal;
    life.throwIfAborted();
    const attempt = new AbortController();
    const abort = () => attempt.abort(life.reason);
    life.addEventListener("abort", abort);
    const late = () => attempt.abort(new UnavailableError("the daemon does not answer"));
    const timer = setTimeout(late, this.#settings.timeout);
    try {
      await this.#greet(await this.#linked(attempt.signal), attempt.signal, again);
      return true;
    } catch (error) {
      life.throwIfAborted();
      if (attempt.signal.aborted) this.#hangUp(); // perhaps it is the door that does not answer
      this.fault = error instanceof BccnError ? error : new UnavailableError(String(error), { cause: error });
      return false;
    } finally {
      clearTimeout(timer);
      life.removeEventListener("abort", abort);
    }
  }

  /** @param {AbortSignal} signal */
  async #linked(signal) {
    if (this.#link?.isOpen) return this.#link;
    const link = new Link(this.#platform);
    await link.connect(this.#settings.address ?? this.#platform.address(), this.#settings, signal);
    return (this.#link = link);
  }

  #hangUp() {
    this.#link?.close();
    this.#link = undefined;
  }

  /**
   * For good.
   * @param {Error} why
   */
  close(why) {
    this.#hangUp();
    this.#life.abort(why);
  }
}

/**
 * Whether a later attempt may do better.
 * @param {BccnError} fault
 */
const mayPass = (fault) => fault instanceof UnavailableError || fault.code === "limit";

/** @param {number} pause */
const jittered = (pause) => pause * (0.5 + Math.random());
