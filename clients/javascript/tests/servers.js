/** Servers before a door in memory: what the carriers of the client connect to. */

import { createHash } from "node:crypto";
import http from "node:http";

/** @typedef {import("./fake_door.js").FakeDoor} FakeDoor */
/** @typedef {import("node:net").Socket} Socket */

/**
 * Has whoever comes by a socket speak with a door.
 * @param {FakeDoor} door
 * @param {Socket} socket
 */
export async function serve(door, socket) {
  const signal = new AbortController().signal;
  const taker = { data: (/** @type {Uint8Array} */ data) => void socket.write(data), drain() {}, end: () => void socket.end() };
  const carrier = await door.platform.open("", {}, taker, signal);
  socket.on("data", (data) => carrier.write(data)).on("close", () => carrier.destroy()).on("error", () => {});
}

// The constant of RFC 6455, and the kinds of frames.
const ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const BINARY = 0x82, CLOSE = 0x88;

/**
 * A server of WebSockets, no more than these tests need: short and whole frames, cut as `size` says.
 * @param {FakeDoor} door
 * @param {number} size
 * @param {string[]} asked  gets the subprotocols that each client offers
 */
export function webServer(door, size, asked) {
  const server = http.createServer((_, answer) => answer.writeHead(404).end());
  server.on("upgrade", async ({ headers }, socket) => {
    asked.push(`${headers["sec-websocket-protocol"]}`);
    const accept = createHash("sha1").update(headers["sec-websocket-key"] + ACCEPT).digest("base64");
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: bpmux\r\n\r\n`,
    );
    const signal = new AbortController().signal;
    const taker = {
      data(/** @type {Uint8Array} */ data) {
        for (let at = 0; at < data.length; at += size) socket.write(frame(BINARY, data.subarray(at, at + size)));
      },
      drain() {},
      end: () => void socket.end(frame(CLOSE, new Uint8Array(0))),
    };
    const carrier = await door.platform.open("", {}, taker, signal);
    /** @type {Buffer} */
    let begun = Buffer.alloc(0);
    socket.on("data", (/** @type {Buffer} */ data) => {
      begun = Buffer.concat([begun, data]);
      for (let found; (found = unframed(begun)); begun = found.rest) {
        if (found.tag === CLOSE) socket.end(frame(CLOSE, new Uint8Array(0)));
        else carrier.write(found.payload);
      }
    });
    socket.on("close", () => carrier.destroy()).on("error", () => {});
  });
  return server;
}

/**
 * @param {number} tag
 * @param {Uint8Array} payload  below 64 KiB
 */
function frame(tag, payload) {
  const { length } = payload;
  const head = length < 126 ? [tag, length] : [tag, 126, length >> 8, length & 255];
  return Buffer.concat([Uint8Array.from(head), payload]);
}

/** The first frame of a client, if it is whole. @param {Buffer} data */
function unframed(data) {
  if (data.length < 14 && data.length < 6 + (data[1] & 127)) return undefined;
  const short = data[1] & 127;
  const [at, length] = short < 126 ? [2, short] : short === 126 ? [4, data.readUInt16BE(2)] : [10, Number(data.readBigUInt64BE(2))];
  if (data.length < at + 4 + length) return undefined;
  const mask = data.subarray(at, at + 4);
  const payload = Uint8Array.from(data.subarray(at + 4, at + 4 + length), (byte, i) => byte ^ mask[i & 3]);
  return { tag: data[0], payload, rest: data.subarray(at + 4 + length) };
}
