/** What a program is told of its connection, besides the results of its calls. */

// So many wait to be told one by one. The daemon can reject every message; beyond this, one of them counts the others.
const NOTICES_LIMIT = 256;

/**
 * @typedef {"lost" | "rejected" | "revoked" | "closing" | "disconnected" | "reconnected" | "unclaimed" | "unrecorded"} NoticeKind
 *   as in clients/PROTOCOL.md, "The functions of a client", and `unrecorded` of replays; later versions may have more
 */

/** Something that happened to the connection. */
export class Notice {
  /**
   * @param {NoticeKind} kind
   * @param {string} text  a line for people
   * @param {number} [count]
   * @param {Error} [error]  of a rejection
   */
  constructor(kind, text, count = 0, error) {
    this.kind = kind;
    this.text = text;
    this.count = count;
    this.error = error;
  }

  toString() {
    return this.kind === "rejected" && this.count > 1 ? `${this.text}, ${this.count} times` : this.text;
  }
}

/** Tells notices one after the other, when what caused them has been done to its end. */
export class Notices {
  /** @type {Notice[]} */
  #waiting = [];
  #tell;

  /** @param {(notice: Notice) => void} tell */
  constructor(tell) {
    this.#tell = tell;
  }

  /** @param {Notice} notice */
  add(notice) {
    const waiting = this.#waiting;
    const isFull = waiting.length >= NOTICES_LIMIT;
    const alike = isFull
      ? waiting.findLast((each) => each.kind === notice.kind)
      : waiting.at(-1)?.kind === notice.kind && waiting.at(-1)?.text === notice.text && waiting.at(-1);
    if (alike) {
      alike.count += notice.count;
    } else if (!isFull) {
      waiting.push(notice);
      if (waiting.length === 1) queueMicrotask(() => this.#tellAll());
    }
  }

  #tellAll() {
    while (this.#waiting.length) {
      const all = this.#waiting;
      this.#waiting = [];
      for (const notice of all) report(() => this.#tell(notice));
    }
  }
}

/**
 * Calls a function of the program. What it throws is nobody's here: it is reported as an error that nobody caught.
 * @param {() => unknown} function_
 */
export async function report(function_) {
  try {
    await function_();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

/** Where nobody else wants them. @param {Notice} notice */
export function warn(notice) {
  console.warn(`bccn: ${notice}`);
}
