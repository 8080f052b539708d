/** Packets and patterns against the golden vectors. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";

import { ProtocolError } from "../src/errors.js";
import { matches } from "../src/patterns.js";
import { buildControl, buildMessage, buildPack, buildSub, isPack, Message, parse, unpack } from "../src/protocol.js";
import { hexOf, unhex, vectors } from "./vectors.js";

/** @param {string} type */
const sound = (type) => vectors("sbus", "valid").filter((vector) => vector.type === type);

/**
 * Reads a packet as a client does.
 * @param {Uint8Array} packet
 */
function everything(packet) {
  /** @type {any[]} */
  const said = [];
  if (isPack(packet)) unpack(packet, (each) => said.push(parse(each)));
  else said.push(parse(packet));
  return said;
}

test("patterns match as in the daemon", () => {
  for (const { separator, pattern, channel, matches: expected } of vectors("patterns", "matches")) {
    assert.equal(matches(pattern, channel, separator), expected, `${pattern} ${channel}`);
  }
});

test("messages are read and written", () => {
  for (const vector of sound("MSG")) {
    const message = /** @type {Message} */ (parse(unhex(vector.packet)));
    assert.equal(message.channel, vector.chan, vector.name);
    assert.equal(hexOf(message.payload), vector.payload, vector.name);
    if (vector.canonical) assert.equal(hexOf(buildMessage(message.channel, message.payload)), vector.packet, vector.name);
  }
});

test("subscriptions are written", () => {
  for (const vector of [...sound("SUB"), ...sound("UNSUB")].filter((each) => each.canonical)) {
    assert.equal(hexOf(buildSub(vector.type, vector.pattern)), vector.packet, vector.name);
  }
});

test("control is read and written", () => {
  for (const vector of sound("CMSG").filter((each) => each.canonical)) {
    const said = /** @type {{key: string, value: string}} */ (parse(unhex(vector.packet)));
    assert.deepEqual([said.key, hexOf(Buffer.from(said.value))], [vector.key, vector.value], vector.name);
    assert.equal(hexOf(buildControl(said.key, said.value)), vector.packet, vector.name);
  }
});

test("full messages are read", () => {
  for (const vector of [...sound("RECV"), ...vectors("sbus", "tapped")]) {
    const message = /** @type {Message} */ (parse(unhex(vector.packet)));
    assert.deepEqual(
      [message.peer, String(message.timeNs), message.verdict, hexOf(message.datagram ?? Buffer.alloc(0)), message.interface],
      [vector.peer, vector.unix_ns, vector.verdict, vector.datagram, vector.interface],
      vector.name,
    );
  }
});

test("every sound datagram is read", () => {
  for (const vector of vectors("bccn1", "valid")) {
    const packet = Buffer.concat([Buffer.from("RECV 10.0.0.1:5400 17 ok\0"), unhex(vector.datagram)]);
    const message = /** @type {Message} */ (parse(packet, vector.chan));
    assert.deepEqual(
      [message.src, String(message.seq), message.channel, hexOf(message.payload)],
      [vector.src, vector.seq, vector.chan, vector.payload],
      vector.name,
    );
  }
});

test("packs are taken apart and put together", () => {
  for (const vector of sound("PACK")) {
    /** @type {Uint8Array[]} */
    const packets = [];
    unpack(unhex(vector.packet), (packet) => packets.push(packet));
    assert.deepEqual(packets.map(hexOf), vector.packets, vector.name);
    assert.equal(hexOf(buildPack(packets)), vector.packet, vector.name);
  }
});

test("broken packets are a protocol error", () => {
  const broken = vectors("sbus", "invalid").filter(({ name }) => /^(RECV|PACK):/.test(name)); // a daemon reads the others
  assert.ok(broken.length > 20);
  for (const vector of broken) {
    assert.throws(() => everything(unhex(vector.packet)), ProtocolError, vector.name);
  }
});

test("random packets are read, or a protocol error", () => {
  const seeds = vectors("sbus", "valid").map((vector) => unhex(vector.packet));
  for (let i = 0; i < 2000; i++) {
    const packet = seeds[i % seeds.length].slice();
    for (const byte of randomBytes(3)) packet[byte % packet.length] = byte;
    try {
      everything(packet);
    } catch (error) {
      assert.ok(error instanceof ProtocolError, `${hexOf(packet)}: ${error}`);
    }
  }
});

test("what is kept of a packet holds nothing else of it", () => {
  const packet = Buffer.concat([Buffer.from("MSG a\0"), Buffer.alloc(10), Buffer.alloc(100_000)]).subarray(0, 16);
  const message = /** @type {Message} */ (parse(packet));
  assert.equal(message.payload.buffer.byteLength, 10);
});

test("what cannot be framed is refused", () => {
  for (const build of [
    () => buildMessage("a\0b", ""),
    () => buildMessage("ä", ""),
    () => buildMessage("a", /** @type {any} */ (1)),
    () => buildSub("SUB", "two words"),
    () => buildControl("no key"),
    () => buildControl(""),
  ]) {
    assert.throws(build, { code: "invalid" });
  }
});
