/** The client for browsers: a WebSocket to the door that has the page, or to another one. */

import { openWebSocket } from "./carriers/websocket.js";
import { Client } from "./client.js";
import { InvalidError } from "./errors.js";

/** @typedef {import("./link.js").Platform} Platform */

/** @type {(() => void)[]} */
const turns = [];
// A timer of a browser waits for milliseconds; a message to oneself comes in the next turn.
const { port1, port2 } = new MessageChannel();
port1.onmessage = () => turns.shift()?.();

/** @type {Platform} */
const browser = {
  address() {
    const url = new URL("/bus", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return url.href;
  },
  async open(address, options, taker, signal) {
    if (!/^wss?:/.test(address)) throw new InvalidError(`${address}: must be ws://... or wss://...`);
    return openWebSocket(address, options, taker, signal);
  },
  soon(turn) {
    turns.push(turn);
    port2.postMessage(null);
  },
  random: (size) => crypto.getRandomValues(new Uint8Array(size)),
};

/**
 * Connects to the bus. Throws an UnavailableError, a RefusedError, or the daemon's answer to the options.
 * @param {import("../bccn.js").Options} [options]
 */
export function connect(options = {}) {
  return Client.connect(browser, options);
}

export * from "./names.js";
