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
// Bytes of the path of a Unix socket. Node cuts off what is beyond, and would connect to another one.
const PATH_LIMIT = 107;

/**
 * @param {string} path  from /; `@name` is an abstract one
 * @param {Options} _options
 * @param {Taker} taker
 * @param {AbortSignal} signal
 */
export function openUnix(path, _options, taker, signal) {
  if (!path) throw new InvalidError("unix: must be unix:PATH");
  if (Buffer.byteLength(path) > PATH_LIMIT) throw new InvalidError(`unix:${path}: the path of a socket has ${PATH_LIMIT} bytes at most`);
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
  if (!found || Number(found[3]) > 65_535) throw new InvalidError(`tls://${place}: must be tls://HOST:PORT`);
  const host = found[1] ?? found[2];
  const server = options.serverName ?? host;
  const socket = tls.connect({
    host,
    port: Number(found[3]),
    secureContext: contextOf(options),
    ...(net.isIP(server) ? {} : { servername: server }),
  });
  return opened(socket, "secureConnect", place, taker, signal);
}

/** @param {Options} options  the key may be in the file of the certificate */
function contextOf({ ca, cert, key = cert }) {
  if (key && !cert) throw new InvalidError("a key needs its certificate, the option cert");
  const pem = { ca: read(ca, "ca", "certificate"), cert: read(cert, "cert", "certificate"), key: read(key, "key", "private key") };
  if (pem.key?.includes("ENCRYPTED")) {
    throw new InvalidError(`${nameOf(key, "key")} has a password; take it off: openssl pkey -in KEY -out NEW`);
  }
  try {
    return tls.createSecureContext({ ...pem, minVersion: "TLSv1.2" });
  } catch (error) {
    const { code } = /** @type {NodeJS.ErrnoException} */ (error);
    if (code === "ERR_OSSL_X509_KEY_VALUES_MISMATCH") {
      throw new InvalidError(`${nameOf(key, "key")} is not the key of the certificate in ${nameOf(cert, "cert")}`);
    }
    const files = [ca, cert, key].filter((each) => typeof each === "string").join(", ");
    throw new InvalidError(`no keys or certificates to be read in ${files || "the options"}: ${messageOf(error)}`);
  }
}

/**
 * @param {string | Uint8Array | undefined} file
 * @param {string} option
 */
const nameOf = (file, option) => (typeof file === "string" ? file : `the option ${option}`);

/**
 * PEM out of a file, anew for each connection: certificates are replaced while programs run. The library says not
 * which of the files is at fault.
 * @param {string | Uint8Array | undefined} file
 * @param {string} option
 * @param {string} block  what must be in it
 */
function read(file, option, block) {
  if (file === undefined) return undefined;
  let pem;
  try {
    pem = typeof file === "string" ? readFileSync(file) : Buffer.from(file);
  } catch (error) {
    throw new InvalidError(`${option}: ${messageOf(error)}`);
  }
  if (!pem.includes(`${block.toUpperCase()}-----`)) throw new InvalidError(`${nameOf(file, option)} has no ${block} in PEM`);
  return pem;
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
      if (isOpen) taker.end(refusal(place, fault) ?? fault);
      else reject(signal.aborted ? signal.reason : whyNot(place, fault));
    });
  });
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * The error of TLS by which the door refuses a certificate. With TLS 1.3 it comes when the connection stands already.
 * @param {string} place
 * @param {NodeJS.ErrnoException | undefined} fault
 */
function refusal(place, fault) {
  const alert = /^ERR_SSL_.*_ALERT_(.*)$/.exec(fault?.code ?? "");
  if (!alert) return undefined;
  const text = alert[1].replaceAll("_", " ").toLowerCase();
  return new RefusedError("refused", `the door at ${place} does not take our certificate: ${text}`);
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
  if (fault?.code === "EPROTOTYPE") {
    return new UnavailableError(`${place} is the socket of the daemon: connect to that of its door, bccnd-mux`);
  }
  const refused = refusal(place, fault);
  if (refused) return refused;
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
