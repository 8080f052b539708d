/** The options of a client (clients/PROTOCOL.md, "The functions of a client"). Times are in milliseconds. */

import { InvalidError } from "./errors.js";

/** @typedef {import("../bccn.js").Options} Options */

const TIMEOUT = 5000;
const WINDOW = 256 * 1024;
// A window holds the longest packet, whatever else waits.
const SMALLEST_WINDOW = 4 * 1024;

/** All that there are: one that is misspelt would be as one that was left out. @satisfies {Record<keyof Options, true>} */
const KNOWN = {
  address: true, name: true, format: true, pack: true, echo: true, separator: true, queue: true, tap: true,
  reconnect: true, timeout: true, wait: true, onNotice: true, signal: true, window: true, ca: true, cert: true,
  key: true, serverName: true, token: true, WebSocket: true,
};

/**
 * The options as the session needs them: with the defaults, and as what is to be asked of the daemon.
 * @typedef {Options & {wishes: Map<string, string>, separator: "/" | ".", timeout: number, wait: number,
 *   window: number, reconnect: boolean}} Settings
 */

/**
 * @param {Options} options
 * @returns {Settings}
 */
export function settingsOf(options) {
  if (typeof options !== "object") throw new InvalidError(`connect takes options: { address: ${JSON.stringify(options)} }`);
  const unknown = Object.keys(options).filter((name) => !Object.hasOwn(KNOWN, name));
  if (unknown.length) throw new InvalidError(`no option ${unknown.join(", ")}: there are ${Object.keys(KNOWN).join(", ")}`);
  const { format = "plain", separator = "/", tap = "off", timeout = TIMEOUT, wait = 0, window = WINDOW } = options;
  oneOf("format", format, "plain", "full");
  oneOf("separator", separator, "/", ".");
  oneOf("tap", tap, "off", "on", "interface");
  for (const [name, value, least] of /** @type {[string, number, number][]} */ ([
    ["timeout", timeout, 0], ["wait", wait, 0], ["window", window, SMALLEST_WINDOW],
  ])) {
    if (!(value >= least)) throw new InvalidError(`${name} ${value}: must be ${least} or more`);
  }
  /** @type {Map<string, string>} */
  const wishes = new Map();
  const say = (/** @type {string} */ key, /** @type {string} */ value, /** @type {boolean} */ isWanted) => {
    if (isWanted) wishes.set(key, value);
  };
  const queue = Object.entries(options.queue ?? {}).filter(([, value]) => value !== undefined);
  say("name", options.name ?? "", options.name !== undefined);
  say("separator", separator, separator !== "/");
  say("format", format, format !== "plain");
  say("pack", "on", options.pack === true);
  say("echo/off", "", options.echo === false);
  say("queue", queue.map(([key, value]) => `${key}=${value}`).join(" "), queue.length > 0);
  say("tap", tap, tap !== "off");
  return { ...options, wishes, separator, timeout, wait, window, reconnect: options.reconnect !== false };
}

/**
 * @param {string} name
 * @param {string} value
 * @param {string[]} values
 */
function oneOf(name, value, ...values) {
  if (!values.includes(value)) throw new InvalidError(`${name} ${JSON.stringify(value)}: must be ${values.join(" or ")}`);
}
