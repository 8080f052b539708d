/** A WebSocket as a carrier: bytes in order, in binary frames whose borders mean nothing. */

import { InvalidError, UnavailableError } from "../errors.js";

/** @typedef {import("../link.js").Carrier} Carrier */
/** @typedef {import("../link.js").Taker} Taker */

// Bytes that may wait in the WebSocket before the client waits, and how often it looks: there is no event for that.
const BUFFERED_LIMIT = 256 * 1024;
const LOOK_EVERY = 10;
// What a subprotocol is made of (RFC 9110, token).
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/**
 * A browser can set no header, and a token in an address would be logged: so it goes as a second subprotocol.
 * @param {string} address  ws:// or wss://
 * @param {import("../../bccn.js").Options} options
 * @param {Taker} taker
 * @param {AbortSignal} signal
 * @returns {Promise<Carrier>}
 */
export function openWebSocket(address, options, taker, signal) {
  const Constructor = options.WebSocket ?? globalThis.WebSocket;
  if (!Constructor) throw new InvalidError("no WebSocket here: take Node 22, or give the class of a package, such as ws, as the option WebSocket");
  if (options.token !== undefined && !TOKEN.test(options.token)) {
    throw new InvalidError("the token has a character that no token has: it may have letters, digits and !#$%&'*+-.^_|~");
  }
  const hint = options.token === undefined ? " (no token was given)" : "";
  return new Promise((resolve, reject) => {
    const protocols = options.token === undefined ? ["bpmux"] : ["bpmux", `token.${options.token}`];
    let socket;
    try {
      socket = new Constructor(address, protocols);
    } catch (error) {
      reject(new InvalidError(`${address}: ${error}`));
      return;
    }
    socket.binaryType = "arraybuffer";
    const refuse = (/** @type {unknown} */ reason) => {
      signal.removeEventListener("abort", abort);
      socket.close();
      reject(reason);
    };
    const abort = () => refuse(signal.reason);
    signal.addEventListener("abort", abort);
    let isOpen = false;
    let isOver = false;
    const end = (/** @type {Event & {message?: string}} */ { message }) => {
      if (isOver) return;
      isOver = true;
      if (isOpen) taker.end();
      else refuse(new UnavailableError(`no WebSocket at ${address}: ${message || "there is nobody, or it was refused"}${hint}`)); // a browser never says why
    };
    socket.addEventListener("open", () => {
      isOpen = true;
      signal.removeEventListener("abort", abort);
      resolve(carrierOf(socket, taker));
    });
    socket.addEventListener("message", ({ data }) => taker.data(new Uint8Array(data)));
    socket.addEventListener("close", end);
    socket.addEventListener("error", end);
  });
}

/**
 * A WebSocket cannot be paused. What it brings is bounded by credit all the same.
 * @param {WebSocket} socket
 * @param {Taker} taker
 * @returns {Carrier}
 */
function carrierOf(socket, taker) {
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let looking;
  const look = () => {
    if (socket.bufferedAmount >= BUFFERED_LIMIT && socket.readyState === 1) return;
    clearInterval(looking);
    looking = undefined;
    taker.drain();
  };
  return {
    write(data) {
      if (socket.readyState !== 1) return true; // its end is reported
      socket.send(/** @type {Uint8Array<ArrayBuffer>} */ (data));
      if (socket.bufferedAmount < BUFFERED_LIMIT) return true;
      looking ??= setInterval(look, LOOK_EVERY);
      return false;
    },
    pause() {},
    resume() {},
    close() {
      clearInterval(looking);
      socket.close();
    },
    destroy() {
      clearInterval(looking);
      socket.close();
    },
  };
}
