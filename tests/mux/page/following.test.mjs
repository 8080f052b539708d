import assert from "node:assert/strict";
import test from "node:test";

import { Following } from "../../../bccnd/mux/page/following.js";

/** A bus whose subscriptions give what they are told to. */
class Bus {
  subscriptions = [];
  isHeld = false;

  async subscribe(pattern) {
    if (pattern === "bad") throw Object.assign(new Error("no pattern"), { code: "bad-pattern" });
    const one = new Subscription(pattern);
    this.subscriptions.push(one);
    if (this.isHeld) await new Promise((resolve) => (one.agree = resolve));
    return one;
  }
}

class Subscription {
  isClosed = false;
  #waiting = [];
  #wake = () => {};

  constructor(pattern) {
    this.pattern = pattern;
  }

  say(message) {
    this.#waiting.push(message);
    this.#wake();
  }

  async close() {
    this.isClosed = true;
    this.#wake();
  }

  async *[Symbol.asyncIterator]() {
    while (!this.isClosed || this.#waiting.length) {
      if (this.#waiting.length) yield this.#waiting.shift();
      else await new Promise((resolve) => (this.#wake = resolve));
    }
  }
}

const turn = () => new Promise((resolve) => setTimeout(resolve));

test("another pattern takes the place of the one before", async () => {
  const [bus, seen] = [new Bus(), []];
  const following = new Following(bus, (message) => seen.push(message));
  assert.equal(await following.follow("a"), true);
  bus.subscriptions[0].say("one");
  await turn();
  assert.equal(await following.follow("b"), true);
  const [a, b] = bus.subscriptions;
  assert.deepEqual([a.isClosed, b.isClosed], [true, false]);
  a.say("late");
  b.say("two");
  await turn();
  assert.deepEqual(seen, ["one", "two"]);
});

test("a pattern that is refused leaves the last one in force", async () => {
  const [bus, seen] = [new Bus(), []];
  const following = new Following(bus, (message) => seen.push(message));
  await following.follow("a");
  await assert.rejects(following.follow("bad"), { code: "bad-pattern" });
  bus.subscriptions[0].say("one");
  await turn();
  assert.deepEqual(seen, ["one"]);
});

test("of patterns that are typed fast the last one counts", async () => {
  const bus = new Bus();
  bus.isHeld = true;
  const following = new Following(bus, () => {});
  const first = following.follow("a");
  const second = following.follow("ab");
  bus.subscriptions[1].agree();
  bus.subscriptions[0].agree();
  assert.deepEqual(await Promise.all([first, second]), [false, true]);
  assert.deepEqual(bus.subscriptions.map(({ isClosed }) => isClosed), [true, false]);
});
