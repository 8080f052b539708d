/** The client for Node: Unix stream sockets, TLS, and WebSockets where there are any. */

import { randomFillSync } from "node:crypto";
import { existsSync } from "node:fs";

import { openTls, openUnix } from "./carriers/socket.js";
import { openWebSocket } from "./carriers/websocket.js";
import { Client } from "./client.js";
import { InvalidError } from "./errors.js";

/** @typedef {import("./link.js").Platform} Platform */

const SERVICE = "/run/bccnd/mux.sock";

/** @type {Platform} */
const node = {
  address() {
    const { BCCN_CONNECT, XDG_RUNTIME_DIR } = process.env;
    const own = `${XDG_RUNTIME_DIR}/bccnd/mux.sock`;
    return BCCN_CONNECT || `unix:${XDG_RUNTIME_DIR && existsSync(own) ? own : SERVICE}`;
  },
  async open(address, options, taker, signal) {
    if (address.startsWith("unix:")) return openUnix(address.slice("unix:".length), options, taker, signal);
    if (address.startsWith("tls://")) return openTls(address.slice("tls://".length), options, taker, signal);
    if (/^wss?:/.test(address)) return openWebSocket(address, options, taker, signal);
    throw new InvalidError(`${address}: must be unix:PATH, tls://HOST:PORT, ws://... or wss://...`);
  },
  soon: setImmediate,
  random: (size) => randomFillSync(new Uint8Array(size)),
};

/**
 * Connects to the bus. Throws an UnavailableError, a RefusedError, or the daemon's answer to the options.
 * @param {import("../bccn.js").Options} [options]
 */
export function connect(options = {}) {
  return Client.connect(node, options);
}

export * from "./names.js";
