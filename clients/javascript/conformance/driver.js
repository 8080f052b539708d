/** The driver of the JavaScript client for the conformance suite (clients/CONFORMANCE.md). */

import { createInterface } from "node:readline";

import { BccnError, connect, matches, version } from "../src/node.js";

/** @typedef {import("../src/names.js").Client} Client */
/** @typedef {import("../src/names.js").Message} Message */
/** @typedef {import("../src/names.js").Subscription} Subscription */
/** @typedef {import("../src/names.js").Request} Request */
/** @typedef {Buffer} Word  decoded */

// Milliseconds: an event may come in more than one way, and each is looked at so often.
const LOOK_EVERY = 20;

const seconds = (/** @type {Word} */ word) => 1000 * Number(word.toString());
const number = (/** @type {Word} */ word) => Number(word.toString());
const sleep = (/** @type {number} */ ms) => new Promise((resolve) => setTimeout(resolve, ms));
const replyTo = (/** @type {Message} */ request) => Buffer.concat([Buffer.from("re:"), request.payload]);

/** @param {string} word @returns {Word} */
function decoded(word) {
  if (word === "%") return Buffer.alloc(0);
  return Buffer.from(word.replace(/%([0-9A-F]{2})/g, (_, hex) => String.fromCharCode(parseInt(hex, 16))), "latin1");
}

/** @param {Uint8Array | string | number | bigint} data */
function encoded(data) {
  const bytes = data instanceof Uint8Array ? data : Buffer.from(String(data));
  let word = "";
  for (const byte of bytes) {
    const isPlain = byte > 0x20 && byte < 0x7f && byte !== 0x25;
    word += isPlain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return word || "%";
}

/** An error of the driver, with a code of the script. */
class Fault extends BccnError {}

/** What a script has made. */
class Driver {
  /** @type {any} */
  options = {};
  reports = false;
  /** @type {Client | undefined} */
  bus;
  /** @type {Map<string, Subscription[]>} */
  subscriptions = new Map();
  /** @type {Map<string, {receive: Subscription["receive"], held?: Message}>} */
  streams = new Map();
  /** @type {Subscription[]} */
  callbacks = [];
  /** What callbacks were called with, and the word of it. @type {{word: string, message: Message}[]} */
  calls = [];
  /** A message whose loss has been shown. @type {{word: string, message: Message} | undefined} */
  held;
  /** @type {string[]} */
  events = [];
  /** @type {string[]} */
  notices = [];
  /** @type {Message | undefined} */
  last;

  /** @param {Word[]} words */
  async open([address]) {
    await this.close();
    Object.assign(this, { subscriptions: new Map(), streams: new Map(), callbacks: [], calls: [], events: [], notices: [] });
    this.held = undefined;
    const onNotice = (/** @type {import("../src/names.js").Notice} */ { kind, count, error }) => {
      this.notices.push(kind, String(count), error instanceof BccnError ? error.code : "%");
      if (kind === "disconnected" || kind === "reconnected") this.events.push(kind);
    };
    const where = address ? { address: address.toString() } : {};
    this.bus = await connect({ ...this.options, ...where, ...(this.reports ? {} : { onNotice }) });
    return [encoded(this.bus.name)];
  }

  async close() {
    await this.bus?.close();
    this.bus = undefined;
  }

  get client() {
    if (!this.bus) throw new Fault("closed", "there is no open client");
    return this.bus;
  }

  /**
   * @param {Word} word
   * @param {((message: Message) => unknown) | undefined} [callback]
   * @param {AbortSignal} [signal]
   */
  async subscribe(word, callback, signal) {
    const pattern = word.toString();
    const made = await this.client.subscribe(pattern, callback, { signal });
    this.subscriptions.set(pattern, [...(this.subscriptions.get(pattern) ?? []), made]);
    return made;
  }

  /** @param {string} word */
  called(word) {
    const { calls } = this;
    return (/** @type {Message} */ message) => void calls.push({ word, message });
  }

  /**
   * The words of a message; its loss comes first.
   * @param {string} word
   * @param {Message} message
   */
  event(word, message) {
    if (message.lost && this.held?.message !== message) {
      this.held = { word, message };
      return ["lost", String(message.lost)];
    }
    this.held = undefined;
    this.last = message;
    const words = [word, encoded(message.channel), encoded(message.payload)];
    if (message.peer === undefined) return words;
    return [...words, encoded(message.src ?? ""), String(message.seq ?? 0), encoded(message.peer), encoded(message.verdict ?? "")];
  }

  /** Messages first: what is told of the connection may come before the messages that precede it. @param {Word[]} words */
  async receive([wait]) {
    for (const deadline = performance.now() + seconds(wait); ; ) {
      if (this.held) return this.event(this.held.word, this.held.message);
      const call = this.calls.shift();
      if (call) return this.event(call.word, call.message);
      const left = deadline - performance.now();
      const message = await this.client.receive({ timeout: Math.max(0, Math.min(left, LOOK_EVERY)) });
      if (message) return this.event("msg", message);
      if (this.calls.length) continue;
      const event = this.events.shift();
      if (event) return [event];
      if (left <= 0 && !this.callbacks.some((each) => each.pending)) return ["timeout"];
    }
  }

  /** @param {Word[]} words */
  async take([pattern, wait]) {
    const stream = this.streams.get(pattern.toString());
    if (!stream) throw new Fault("invalid", "there is no such stream");
    const message = stream.held ?? (await stream.receive({ timeout: seconds(wait) }));
    if (!message) return ["timeout"];
    if (message.lost && !stream.held) {
      stream.held = message;
      return ["lost", String(message.lost)];
    }
    stream.held = undefined;
    return this.event("msg", Object.assign(message, { lost: 0 }));
  }

  /** @param {Word[]} words */
  async count([wanted, wait]) {
    let [received, lost, last] = [0, 0, /** @type {Uint8Array} */ (Buffer.alloc(0))];
    for (; received < number(wanted); received++) {
      const message = await this.client.receive({ timeout: seconds(wait) });
      if (!message) break;
      lost += message.lost;
      last = message.payload;
    }
    return [String(received), String(lost), encoded(last)];
  }

  /** @param {Word[]} words */
  async flood([channel, count, size]) {
    const batch = this.client.batch();
    for (let i = 1; i <= number(count); i++) {
      await batch.publish(channel.toString(), String(i).padEnd(size ? number(size) : 0, "."));
    }
    await batch.flush();
    return [];
  }

  /** @param {Word[]} words */
  async request([channel, payload, wait, count]) {
    const how = { timeout: seconds(wait) };
    if (!count) return [encoded((await this.client.request(channel.toString(), payload, how)).payload)];
    const replies = [];
    for await (const reply of this.client.requestMany(channel.toString(), payload, { ...how, count: number(count) })) {
      replies.push(encoded(reply.payload));
    }
    return replies;
  }

  /** @param {Word[]} words */
  async serve([most, wait, pattern, later]) {
    if (pattern) return this.servePattern(number(most), seconds(wait), pattern.toString(), later !== undefined);
    let served = 0;
    while (served < number(most)) {
      const message = await this.client.receive({ timeout: seconds(wait) });
      if (!message) break;
      const request = this.client.asRequest(message);
      if (!request) continue;
      await request.reply(replyTo(request));
      served++;
    }
    return [String(served)];
  }

  /**
   * The handler returns each reply, but the last: it sends that itself, so that it has been sent.
   * @param {number} most
   * @param {number} wait
   * @param {string} pattern
   * @param {boolean} isLater
   */
  async servePattern(most, wait, pattern, isLater) {
    /** @type {Request[]} */
    const waiting = [];
    let [asked, served, quiet] = [0, 0, performance.now() + wait];
    const serving = await this.client.serve(pattern, async (request) => {
      quiet = performance.now() + wait;
      if (isLater) {
        waiting.push(request);
        return undefined;
      }
      if (++asked < most) {
        served++;
        return replyTo(request);
      }
      if (asked === most) await request.reply(replyTo(request));
      served++;
      return undefined;
    });
    while (served < most && performance.now() < quiet) {
      const request = waiting.shift();
      if (request) {
        await request.reply(replyTo(request));
        served++;
      } else {
        await sleep(LOOK_EVERY / 4);
      }
    }
    await serving.close();
    return [String(served)];
  }
}

/**
 * A command takes so many words, at least and at most, and returns those behind `ok`, if any.
 * @typedef {[least: number, most: number, run: (d: Driver, words: Word[]) => any]} Command
 */

/** @param {string} name @param {(word: Word) => any} value @returns {Command} */
const option = (name, value) => [1, 1, (d, [word]) => void (d.options[name] = value(word))];
const text = (/** @type {Word} */ word) => word.toString();
const isOn = (/** @type {Word} */ word) => word.toString() === "on";

/** @type {Command} */
const unsupported = [0, 2, () => { throw new Fault("unsupported", "not in JavaScript"); }];

/** @type {Record<string, Command>} */
const commands = {
  format: option("format", text),
  pack: option("pack", isOn),
  separator: option("separator", text),
  timeout: option("timeout", seconds),
  echo: option("echo", isOn),
  reconnect: option("reconnect", isOn),
  tap: option("tap", text),
  wait: option("wait", seconds),
  as: option("name", text),
  queue: [1, 3, (d, words) => {
    const settings = words.map((word) => word.toString().split("="));
    if (settings.some(([key]) => !["packets", "bytes", "policy"].includes(key))) throw usage();
    d.options.queue = { ...d.options.queue, ...Object.fromEntries(settings) };
  }],
  report: [1, 1, (d, [word]) => void (d.reports = isOn(word))],
  open: [0, 1, (d, words) => d.open(words)],
  close: [0, 0, (d) => d.close()],
  version: [0, 0, () => [encoded(version)]],
  matches: [3, 3, (_, [pattern, channel, separator]) =>
    [matches(text(pattern), text(channel), /** @type {"/"} */ (text(separator))) ? "yes" : "no"]],
  fork: unsupported,
  dispatch: unsupported,
  poll: unsupported,
  whoami: [0, 0, (d) => [encoded(d.client.name)]],
  name: [1, 1, async (d, [name]) => {
    await d.client.setName(text(name));
    return [encoded(d.client.name)];
  }],
  sub: [1, 1, async (d, [pattern]) => void (await d.subscribe(pattern))],
  cancel: [2, 2, async (d, [pattern, wait]) => {
    const cancelling = new AbortController();
    const timer = setTimeout(() => cancelling.abort(new Fault("cancelled", "the call was cancelled")), seconds(wait));
    await d.subscribe(pattern, undefined, cancelling.signal).finally(() => clearTimeout(timer));
  }],
  callback: [1, 1, async (d, [pattern]) => void d.callbacks.push(await d.subscribe(pattern, d.called("call")))],
  stream: [1, 1, async (d, [pattern]) => {
    const made = await d.subscribe(pattern);
    d.streams.set(text(pattern), { receive: (patience) => made.receive(patience) });
  }],
  take: [2, 2, (d, words) => d.take(words)],
  unsub: [1, 1, async (d, [pattern]) => {
    const last = d.client && d.subscriptions.get(text(pattern))?.pop();
    if (!last) throw new Fault("invalid", "there is no such subscription");
    await last.close();
  }],
  listen: [0, 1, (d, [word]) => d.client.listen(word && d.called(text(word)))],
  control: [1, 2, async (d, [key, value]) => [encoded(await d.client.control(text(key), value && text(value)))]],
  notices: [0, 0, (d) => d.client && d.notices.splice(0)],
  lost: [0, 0, (d) => [String(d.client.lost)]],
  status: [0, 0, async (d) => [encoded(JSON.stringify(await d.client.status()))]],
  clients: [0, 0, async (d) => [encoded(JSON.stringify(await d.client.clients()))]],
  sources: [0, 0, async (d) => [encoded(JSON.stringify(await d.client.sources()))]],
  datagram: [1, 1, (d, [datagram]) => d.client.sendDatagram(datagram)],
  watch: [1, 1, (d, [pattern]) => {
    const { events } = d;
    const told = (/** @type {string} */ about, /** @type {boolean} */ wanted) =>
      void events.push(`wanted ${encoded(about)} ${wanted ? "yes" : "no"}`);
    return d.client.watch(text(pattern), told);
  }],
  unwatch: [1, 1, (d, [pattern]) => d.client.unwatch(text(pattern))],
  heartbeat: [1, 2, (d, [wait, state]) => d.client.heartbeat(seconds(wait), state && text(state))],
  pub: [2, 2, (d, [channel, payload]) => d.client.publish(text(channel), payload)],
  "pub-to": [2, 2, (d, [target, payload]) => d.client.publishTo(text(target), payload)],
  "pub-all": [1, 1, (d, [payload]) => d.client.publishAll(payload)],
  flood: [2, 3, (d, words) => d.flood(words)],
  barrier: [0, 0, (d) => d.client.barrier()],
  recv: [1, 1, (d, words) => d.receive(words)],
  await: [0, 0, async (d) => d.event("msg", /** @type {Message} */ (await d.client.receive()))],
  origin: [0, 0, (d) => {
    const { timeNs = 0n, datagram = "", interface: by } = d.last ?? {};
    return [String(timeNs), encoded(datagram), ...(by === undefined ? [] : [encoded(by)])];
  }],
  count: [2, 2, (d, words) => d.count(words)],
  request: [3, 4, (d, words) => d.request(words)],
  ask: [2, 2, async (d, [channel, payload]) => [encoded((await d.client.request(text(channel), payload)).payload)]],
  serve: [2, 4, (d, words) => d.serve(words)],
};

const usage = () => new Fault("usage", "no such command, or other arguments");

const driver = new Driver();
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.split(" ");
  if (name === "exit") break;
  let answer;
  try {
    const [least, most, run] = commands[name] ?? [0, -1];
    if (words.length < least || words.length > most) throw usage();
    answer = ["ok", ...((await run(driver, words.map(decoded))) ?? [])];
  } catch (error) {
    if (!(error instanceof BccnError)) throw error;
    answer = ["error", error.code, encoded(error.message)];
  }
  process.stdout.write(`${answer.join(" ")}\n`);
}
await driver.close();
