/** Sockets of Node as carriers: a Unix stream socket, and TCP with TLS. */

import { readFileSync } from "node:fs";
import net from "node:net";
import tls from "node:tls";

import { InvalidError, RefusedError, UnavailableError } from "../errors.js";

/** @typedef {import("../link.js").Carrier} Carrier */
/** @typedef {import("../link.js").Taker} Taker */
/** @typedef {import("../../bccn.js").Options} Options */

// Milliseconds in which what was written may still go when the connection is closed.
const LINGER = 1000;

/**
 * @param {string} path  `@name` is an abstract one
 * @param {Options} _options
 * @param {Taker} taker
 * @param {AbortSignal} signal
 */
export function openUnix(path, _options, taker, signal) {
  const socket = net.connect({ path: path.startsWith("@") ? `\0${path.slice(1)}` : path });
  return opened(socket, "connect", path, taker, signal);
}

/**
 * @param {string} place  HOST:PORT
 * @param {Options} options
 * @param {Taker} taker
 * @param {AbortSignal} signal
 */
export function openTls(place, options, taker, signal) {
  const found = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(place);
  if (!found) throw new InvalidError(`${place}: must be HOST:PORT`);
  const host = found[1] ?? found[2];
  const server = options.serverName ?? host;
  const socket = tls.connect({
    host,
    port: Number(found[3]),
    ca: read(options.ca),
    cert: read(options.cert),
    key: read(options.key),
    ...(net.isIP(server) ? {} : { servername: server }),
    minVersion: "TLSv1.2",
  });
  return opened(socket, "secureConnect", place, taker, signal);
}

/**
 * PEM out of a file, anew for each connection: certificates are replaced while programs run.
 * @param {string | Uint8Array | undefined} file
 */
function read(file) {
  if (file === undefined || typeof file !== "string") return file && Buffer.from(file);
  try {
    return readFileSync(file);
  } catch (error) {
    throw new UnavailableError(`cannot read ${file}`, { cause: error });
  }
}

/**
 * @param {net.Socket} socket
 * @param {"connect" | "secureConnect"} event
 * @param {string} place
 * @param {Taker} taker
 * @param {AbortSignal} signal
 * @returns {Promise<Carrier>}
 */
function opened(socket, event, place, taker, signal) {
  return new Promise((resolve, reject) => {
    let isOpen = false;
    /** @type {NodeJS.ErrnoException | undefined} */
    let fault;
    const abort = () => socket.destroy(signal.reason);
    signal.addEventListener("abort", abort);
    socket.setNoDelay?.(true);
    socket.once(event, () => {
      isOpen = true;
      signal.removeEventListener("abort", abort);
      resolve(carrierOf(socket));
    });
    socket.on("data", (data) => taker.data(data)); // whoever keeps some of it makes a copy
    socket.on("drain", () => taker.drain());
    socket.on("error", (error) => (fault = error));
    socket.on("close", () => {
      signal.removeEventListener("abort", abort);
      if (isOpen) taker.end(fault);
      else reject(signal.aborted ? signal.reason : whyNot(place, fault));
    });
  });
}

/**
 * @param {string} place
 * @param {NodeJS.ErrnoException | undefined} fault
 */
function whyNot(place, fault) {
  if (fault?.code === "EACCES") return new RefusedError("refused", `no permission to connect to ${place}`);
  if (fault?.code === "EAGAIN") {
    return new UnavailableError(`the door at ${place} is busy: more programs connect than it accepts`, { cause: "busy" });
  }
  return new UnavailableError(`no door of the bus at ${place}: ${fault?.message ?? "it has hung up"}`, { cause: fault });
}

/**
 * @param {net.Socket} socket
 * @returns {Carrier}
 */
function carrierOf(socket) {
  return {
    write: (data) => socket.destroyed || socket.write(data),
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close() {
      socket.end(() => socket.destroy());
      setTimeout(() => socket.destroy(), LINGER).unref();
    },
    destroy: () => void socket.destroy(),
  };
}
