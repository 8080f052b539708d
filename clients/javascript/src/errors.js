/**
 * What can go wrong on the bus, one tree. `code` is the word for it, the same in every language
 * (clients/PROTOCOL.md, "The functions of a client"); `message` is a line for people.
 *
 * A call that is given up by its AbortSignal fails with the reason of that signal instead, as in all of JavaScript.
 */

/** The root of the tree. */
export class BccnError extends Error {
  /**
   * @param {string} code
   * @param {string} text
   * @param {ErrorOptions} [options]
   */
  constructor(code, text, options) {
    super(text, options);
    this.name = new.target.name;
    this.code = code;
  }
}

/** An argument cannot be sent at all. */
export class InvalidError extends BccnError {
  /** @param {string} text */
  constructor(text) {
    super("invalid", text);
  }
}

/** There is no daemon or no door, or it went away and did not come back in time. Nothing was sent. */
export class UnavailableError extends BccnError {
  /**
   * @param {string} text
   * @param {ErrorOptions & {code?: string}} [options]
   */
  constructor(text, options) {
    super(options?.code ?? "unavailable", text, options);
  }
}

/** Messages that were sent on a connection that broke may not have been published. */
export class UnconfirmedError extends UnavailableError {
  /** @param {string} text */
  constructor(text) {
    super(text, { code: "unconfirmed" });
  }
}

/** The daemon does not answer or takes no more, or no reply came. */
export class TimedOutError extends BccnError {
  /** @param {string} text */
  constructor(text) {
    super("timeout", text);
  }
}

/** Nobody on this host, nor on another with a daemon, would get the request. */
export class NobodyListensError extends BccnError {
  /** @param {string} text */
  constructor(text) {
    super("nobody", text);
  }
}

/** This program makes requests and does not receive the messages that wait for it. */
export class BacklogError extends BccnError {
  /** @param {string} text */
  constructor(text) {
    super("backlog", text);
  }
}

/** The client or the subscription is closed. */
export class ClosedError extends BccnError {
  /** @param {string} text */
  constructor(text) {
    super("closed", text);
  }
}

/** What came is not of this protocol. */
export class ProtocolError extends BccnError {
  /** @param {string} text */
  constructor(text) {
    super("protocol", text);
  }
}

/** The daemon rejects it; `code` is a word of the protocol (clients/PROTOCOL.md, "Errors"). */
export class RejectedError extends BccnError {
  /**
   * @param {string} code
   * @param {string} text  begins with the packet that it is about
   */
  constructor(code, text) {
    super(code, `${text} (${code})`);
    this.text = text;
  }
}

/** This program has no right to it. */
export class RefusedError extends RejectedError {}

/**
 * The error that `<code> <text>` stands for.
 * @param {string} value
 */
export function rejected(value) {
  const space = value.indexOf(" ");
  const [code, text] = space < 0 ? [value, ""] : [value.slice(0, space), value.slice(space + 1)];
  return new (code === "refused" ? RefusedError : RejectedError)(code, text);
}
