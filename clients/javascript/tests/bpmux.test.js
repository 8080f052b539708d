/** One side of bpmux against clients/vectors/bpmux.json, whole and byte by byte, and its limits. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as chunks from "../src/bpmux/chunks.js";
import { Endpoint } from "../src/bpmux/endpoint.js";
import { BpmuxError } from "../src/bpmux/errors.js";
import { hexOf, unhex, vectors } from "./vectors.js";

/**
 * @param {Uint8Array} data
 * @returns {{kind: string, id: number, number: number | bigint, payload: string}[]}
 */
function parsed(data) {
  const found = /** @type {any[]} */ ([]);
  new chunks.Reader().feed(data, (kind, id, number, piece) => {
    found.push({ kind: chunks.NAMES[kind], id, number, payload: hexOf(piece) });
  });
  return found;
}

const KINDS = new Map(Object.entries(chunks.NAMES).map(([kind, name]) => [name, Number(kind)]));

test("chunks are read and written", () => {
  for (const vector of vectors("bpmux", "chunks")) {
    const [chunk, ...others] = parsed(unhex(vector.chunk));
    const kind = /** @type {number} */ (KINDS.get(vector.kind));
    const id = vector.id ?? chunks.TOP;
    assert.deepEqual(others, [], vector.name);
    assert.equal(chunk.kind, vector.kind, vector.name);
    assert.equal(chunk.id, id, vector.name);
    assert.equal(chunk.payload, vector.payload ?? "", vector.name);
    if (vector.amount && kind !== chunks.PARTIAL) assert.equal(String(chunk.number), vector.amount, vector.name);
    if (vector.canonical) {
      const number = vector.amount ? BigInt(vector.amount) : chunk.payload.length / 2;
      assert.equal(hexOf(chunks.head(kind, id, number)) + chunk.payload, vector.chunk, vector.name);
    }
  }
});

test("a tag with which no chunk begins is a fault", () => {
  for (const vector of vectors("bpmux", "invalid")) {
    assert.throws(() => parsed(unhex(vector.chunk)), { rule: vector.rule }, vector.name);
  }
});

/** Plays a conversation: `names` is what it calls channels and requests. */
class Player {
  /** @param {any} conversation */
  constructor(conversation) {
    this.endpoint = new Endpoint(0, conversation.limits);
    this.endpoint.dataToSend(); // its own credit for the top level goes before the conversation
    /** @type {Map<any, string | null>} */
    this.names = new Map([[this.endpoint.top, null]]);
  }

  /** @param {string} name */
  named(name) {
    return [...this.names].find(([, each]) => each === (name ?? null))?.[0];
  }

  /** @param {any} step */
  do(step) {
    const payload = unhex(step.payload ?? "");
    const { endpoint } = this;
    const open = { sink: endpoint.openSink, stream: endpoint.openStream, duplex: endpoint.openDuplex };
    if (step.do === "open") this.name(open[/** @type {"sink"} */ (step.kind)].call(endpoint, payload), step.of);
    else if (step.do === "request") this.name(endpoint.request(payload), step.of);
    else if (step.do === "grant") endpoint.grant(this.named(step.of), Number(step.amount));
    else /** @type {any} */ (endpoint)[step.do](this.named(step.of), payload);
  }

  /**
   * @param {any} entity
   * @param {string} name
   */
  name(entity, name) {
    const old = this.named(name);
    if (old) this.names.delete(old);
    this.names.set(entity, name);
  }

  /**
   * An event in the words of the vectors.
   * @param {import("../src/bpmux/endpoint.js").Event} event
   * @param {any} said
   */
  shown(event, said) {
    if (["opened", "requested", "refused"].includes(event.type) && !this.names.has(event.of)) {
      this.name(event.of, said.of);
    }
    const shown = /** @type {any} */ ({ event: event.type });
    const of = this.names.get(event.of);
    if (of !== null && event.type !== "finished") shown.of = of;
    if (event.type === "opened") shown.kind = chunks.NAMES[event.of.kind];
    if ("payload" in said || event.payload.length) shown.payload = hexOf(event.payload);
    if (event.type === "refused") delete shown.payload;
    return shown;
  }
}

for (const isCut of [false, true]) {
  test(`conversations, ${isCut ? "byte by byte" : "whole"}`, () => {
    for (const conversation of vectors("bpmux", "conversations")) {
      const player = new Player(conversation);
      for (const [at, step] of conversation.steps.entries()) {
        const where = `${conversation.name}, step ${at}`;
        if ("do" in step) {
          player.do(step);
        } else {
          const [heard, rule] = hear(player.endpoint, unhex(step.in), isCut);
          assert.deepEqual(heard.map((event, i) => player.shown(event, step.events[i] ?? {})), step.events, where);
          assert.equal(rule, step.rule, where);
        }
        if (!("rule" in step)) assert.equal(hexOf(player.endpoint.dataToSend()), step.out, where);
      }
    }
  });
}

/**
 * @param {Endpoint} endpoint
 * @param {Uint8Array} data
 * @param {boolean} isCut
 * @returns {[import("../src/bpmux/endpoint.js").Event[], string | undefined]}
 */
function hear(endpoint, data, isCut) {
  const heard = [];
  const parts = isCut ? [...data].map((byte) => Uint8Array.of(byte)) : [data];
  for (const part of parts) {
    try {
      heard.push(...endpoint.receive(part, 0));
    } catch (error) {
      if (!(error instanceof BpmuxError)) throw error;
      return [[...heard, ...endpoint.events()], error.rule];
    }
  }
  return [heard, undefined];
}

test("credit is exact up to 2^64", () => {
  const endpoint = new Endpoint(0);
  const all = unhex("efffffffffffffffff");
  endpoint.receive(all, 0);
  assert.throws(() => endpoint.receive(unhex("ec01"), 0), { rule: "credit" });
  const another = new Endpoint(0);
  another.receive(all, 0);
  another.openSink(unhex("68"));
  another.dataToSend();
  another.receive(unhex("ec01"), 0);
  assert.throws(() => another.receive(unhex("ec01"), 0), { rule: "credit" });
});

test("silence is asked about three times, and then reported", () => {
  const endpoint = new Endpoint(0);
  endpoint.dataToSend();
  for (let asked = 0; asked < 3; asked++) {
    assert.deepEqual(endpoint.expire(endpoint.deadline), []);
    assert.equal(hexOf(endpoint.dataToSend()), "d3");
  }
  assert.deepEqual(endpoint.expire(endpoint.deadline).map((event) => event.type), ["silent"]);
  endpoint.receive(unhex("db"), 50_000);
  assert.equal(endpoint.deadline, 60_000);
});

test("a peer that reads nothing is dropped before its replies take much", () => {
  const endpoint = new Endpoint(0, { replies: 1000 });
  assert.throws(() => endpoint.receive(new Uint8Array(10_000).fill(0xd3), 0), { rule: "limit" });
  assert.ok(endpoint.replies < 1020);
  assert.equal(endpoint.dataToSend().length, 0);
});

test("payloads that never end take no more memory than their limit", () => {
  const endpoint = new Endpoint(0, { unfinished: 4096, payload: 2048 });
  for (let id = 0; id < 64; id++) endpoint.receive(Uint8Array.of(0xfd, 0x08, 0x00, 0x80, id, 0xff, ...new Uint8Array(255)), 0);
  assert.ok(endpoint.held <= 4096);
  assert.ok(endpoint.held > 2048);
});

test("a window is granted anew once half of it is consumed", () => {
  const endpoint = new Endpoint(0);
  endpoint.receive(unhex("ee00010000"), 0);
  const channel = /** @type {any} */ (endpoint.openDuplex(unhex("62"), 100));
  endpoint.dataToSend();
  assert.equal(channel.credit, 100);
  for (let i = 0; i < 6; i++) endpoint.receive(Uint8Array.of(0x70, 0, 10, ...new Uint8Array(10)), 0);
  assert.deepEqual([channel.credit, channel.held], [40, 60]);
  assert.equal(endpoint.dataToSend().length, 0);
  endpoint.consumed(channel, 60);
  assert.equal(hexOf(endpoint.dataToSend()), "e0003c");
  assert.deepEqual([channel.credit, channel.held], [100, 0]);
});
