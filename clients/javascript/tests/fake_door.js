/** A door and a daemon in memory: the other side of a connection is the same class, and a script plays the daemon. */

import { randomFillSync } from "node:crypto";

import { Endpoint } from "../src/bpmux/endpoint.js";
import { BpmuxError } from "../src/bpmux/errors.js";
import { Client } from "../src/client.js";
import { decoded, encoded } from "../src/protocol.js";
import { closedAfter } from "./opened.js";

/** @typedef {import("../src/bpmux/entities.js").Channel} Channel */
/** @typedef {(packet: string, door: FakeDoor) => boolean | void} Script  true: it has dealt with the packet */

/** @type {Record<string, string>} */
const ANSWERS = { whoami: "here/test/1", pack: "on 65536" };

export const settled = () => new Promise((resolve) => setTimeout(resolve, 5));

export class FakeDoor {
  /** Packets of all clients. @type {string[]} */
  seen = [];
  /** How often somebody connected. */
  links = 0;
  /** Of the last one. @type {Channel | undefined} */
  bus;
  /** The last stream that was opened, and what it asked for. @type {Channel | undefined} */
  stream;
  asked = "";
  /** What is refused with a reason, if anything is. */
  refusal = "";
  /** Bytes that clients may send at first; what they sent is granted anew. */
  window = 65536;
  /** Its own answers, by question; it refuses others. @type {Record<string, string>} */
  answers = {};
  /** Nobody gets an answer. */
  isMute = false;
  /** How often a client wrote. */
  writes = 0;
  #endpoint = new Endpoint(0);
  /** @type {import("../src/link.js").Taker | undefined} */
  #client;
  #script;

  /** @param {Script} [script] */
  constructor(script = () => {}) {
    this.#script = script;
  }

  /** @type {import("../src/link.js").Platform} */
  platform = {
    address: () => "memory:",
    open: async (_address, _options, taker) => {
      this.links++;
      this.#endpoint = new Endpoint(0);
      this.#client = taker;
      const isCurrent = () => this.#client === taker;
      queueMicrotask(() => this.flush());
      return {
        write: (data) => {
          this.writes++;
          queueMicrotask(() => isCurrent() && this.#hear(data));
          return true;
        },
        pause() {},
        resume() {},
        close: () => queueMicrotask(() => isCurrent() && this.hangUp()),
        destroy: () => isCurrent() && this.hangUp(),
      };
    },
    soon: setImmediate,
    random: (size) => randomFillSync(new Uint8Array(size)),
  };

  /** @param {import("../bccn.js").Options} [options] */
  async connect(options = {}) {
    return closedAfter(await Client.connect(this.platform, { onNotice() {}, timeout: 30_000, ...options }));
  }

  /** Whether a client is there. */
  get isLinked() {
    return this.#client !== undefined;
  }

  /** Bytes that wait here for credit of the client. */
  get queued() {
    return this.#endpoint.queued;
  }

  /** @param {Uint8Array} data */
  #hear(data) {
    /** @type {import("../src/bpmux/endpoint.js").Event[]} */
    let events = [];
    try {
      events = this.#endpoint.receive(data, 0);
    } catch (error) {
      if (!(error instanceof BpmuxError)) throw error;
      this.hangUp(); // a test has said what no door says
    }
    for (const { type, of, payload } of events) {
      if (type === "opened" && decoded(payload) !== "bus") {
        this.stream = of;
        this.asked = decoded(payload);
      } else if (type === "opened") {
        this.bus = of;
        if (this.refusal) this.end(this.refusal);
        else if (this.window) this.#endpoint.setWindow(of, this.window);
      } else if (type === "cancelled" && of === this.stream) {
        this.stream = undefined;
      } else if (type === "message") {
        const packet = decoded(payload);
        this.seen.push(packet);
        if (!this.#script(packet, this)) this.#answer(packet);
        this.#endpoint.consumed(of, payload.length);
      } else if (type === "requested") {
        const answer = this.answers[decoded(payload)];
        if (answer !== undefined) this.#endpoint.respond(of, encoded(answer));
        else if (!this.isMute) this.#endpoint.close(of, encoded("refused not that"));
      }
    }
    this.flush();
  }

  /** @param {string} packet */
  #answer(packet) {
    const [, key, value = ""] = /^CMSG ([^\0]*)\0?(.*)$/s.exec(packet) ?? [];
    const answer = `CMSG ${key === "ping" ? "pong" : key}\0${ANSWERS[key] ?? value}`;
    if (key && this.bus) this.#endpoint.send(this.bus, encoded(answer)); // a client that has left gets none
  }

  /** A packet of the daemon. @param {string} packet */
  say(packet) {
    if (this.bus && !this.#endpoint.send(this.bus, encoded(packet))) throw new Error("too much waits for credit");
    this.flush();
  }

  /** On the stream. @param {string[]} packets */
  tell(...packets) {
    for (const packet of packets) if (this.stream) this.#endpoint.send(this.stream, encoded(packet));
    this.flush();
  }

  /** Of the stream. @param {string} [reason] */
  endStream(reason = "") {
    if (this.stream) this.#endpoint.close(this.stream, encoded(reason));
    this.stream = undefined;
    this.flush();
  }

  /** The daemon has gone, or lets nobody in. @param {string} reason */
  end(reason) {
    if (!this.bus) return;
    this.#endpoint.close(this.bus, encoded(reason));
    this.#endpoint.cancel(this.bus, encoded(reason));
    this.flush();
  }

  /** A channel to the client, which serves none. */
  open() {
    const channel = this.#endpoint.openDuplex(encoded("what?"));
    this.flush();
    return channel;
  }

  /** Bytes as they are. @param {Uint8Array} data */
  blurt(data) {
    this.#client?.data(data);
  }

  hangUp() {
    const client = this.#client;
    this.#client = undefined;
    queueMicrotask(() => client?.end());
  }

  flush() {
    for (let data; (data = this.#endpoint.dataToSend()).length; ) this.#client?.data(data);
  }
}
