/** Who is told whether anybody listens (clients/PROTOCOL.md, "Watches"). */

import { Entry } from "./entry.js";
import { InvalidError } from "./errors.js";
import { report } from "./notices.js";
import { buildControl } from "./protocol.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").Patience} Patience */
/** @typedef {(pattern: string, wanted: boolean) => unknown} News */
/** @typedef {{callback: News, wanted: boolean, told: boolean | undefined, isTelling: boolean}} Watch */

/**
 * What the daemon says of a watch is a state. A callback is told of changes, and while it runs the last state replaces
 * those before it.
 */
export class Watches {
  /** By pattern. @type {Map<string, Watch>} */
  #all = new Map();
  /** Calls that wait for the daemon, by pattern, and whether it may agree to one that has failed.
   *  @type {Map<string, {calls: number, isOwed: boolean}>} */
  asking = new Map();
  #isOver;

  /** @param {() => boolean} isOver  nobody is told any more */
  constructor(isOver) {
    this.#isOver = isOver;
  }

  /**
   * @param {string} pattern
   * @param {News} callback  in place of an earlier one
   */
  begin(pattern, callback) {
    this.#all.set(pattern, { callback, wanted: false, told: undefined, isTelling: false });
  }

  /** @param {string} pattern */
  end(pattern) {
    this.#all.delete(pattern);
  }

  /** @param {string} pattern */
  has(pattern) {
    return this.#all.has(pattern);
  }

  /** What a new connection is asked. */
  entries() {
    return [...this.#all.keys()].map((pattern) => new Entry([buildControl("watch", pattern)], { key: "watch" }));
  }

  /** @param {string} news  `<where> <pattern>` */
  hear(news) {
    const [where, pattern] = news.split(" ", 2);
    const watch = this.#all.get(pattern);
    if (!watch) return;
    watch.wanted = where !== "no"; // a newer daemon may have more words
    if (watch.isTelling) return;
    watch.isTelling = true;
    queueMicrotask(() => this.#tell(pattern, watch));
  }

  /**
   * @param {string} pattern
   * @param {Watch} watch
   */
  async #tell(pattern, watch) {
    while (this.#all.get(pattern) === watch && watch.told !== watch.wanted && !this.#isOver()) {
      const wanted = (watch.told = watch.wanted);
      await report(() => watch.callback(pattern, wanted));
    }
    watch.isTelling = false;
  }
}

/**
 * Returns when the daemon has agreed. If it throws, there is no new watch, also where the answer comes later.
 * @param {Session} session
 * @param {string} pattern
 * @param {News} callback
 * @param {Patience} [patience]
 */
export async function watch(session, pattern, callback, patience) {
  if (typeof callback !== "function") throw new InvalidError("to watch needs a callback");
  const { watches } = session;
  const entry = new Entry([buildControl("watch", pattern)], { key: "watch" });
  entry.granted = () => watches.begin(pattern, callback);
  const asking = watches.asking.get(pattern) ?? { calls: 0, isOwed: false };
  watches.asking.set(pattern, asking);
  asking.calls++;
  try {
    await session.deliver(entry, patience);
  } catch (error) {
    asking.isOwed ||= entry.sent > 0 && session.isConnected && !entry.error;
    throw error;
  } finally {
    if (!--asking.calls) {
      watches.asking.delete(pattern);
      if (asking.isOwed && !watches.has(pattern)) takeBack(session, pattern);
    }
  }
}

/**
 * Has the daemon end a watch of which nobody is told, without waiting for it.
 * @param {Session} session
 * @param {string} pattern
 */
function takeBack(session, pattern) {
  const entry = new Entry([buildControl("unwatch", pattern)], { key: "unwatch" });
  entry.done = true; // for nobody: a new connection has no such watch
  session.post(entry);
}

/**
 * @param {Session} session
 * @param {string} pattern
 * @param {Patience} [patience]
 */
export async function unwatch(session, pattern, patience) {
  const { watches } = session;
  const isHeld = watches.has(pattern);
  watches.end(pattern);
  const entry = new Entry([buildControl("unwatch", pattern)], { key: "unwatch" });
  entry.granted = () => watches.end(pattern); // that another call had asked for
  try {
    await session.deliver(entry, patience);
  } catch (error) {
    const asking = watches.asking.get(pattern);
    if (asking) asking.isOwed ||= isHeld;
    else if (isHeld && !entry.sent) takeBack(session, pattern);
    throw error;
  }
}
