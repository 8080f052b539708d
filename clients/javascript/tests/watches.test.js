/** What a callback of a watch is told, and when: the conformance suite has the rest. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeDoor, settled } from "./fake_door.js";

test("a slow callback is told the last state", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  /** @type {boolean[]} */
  const told = [];
  /** @type {(() => void) | undefined} */
  let goOn;
  await bus.watch("a", (_, wanted) => {
    told.push(wanted);
    return new Promise((resolve) => void (goOn = () => resolve(undefined)));
  });
  for (const where of ["here", "elsewhere", "beyond"]) door.say(`CMSG wanted\0${where} a`);
  await settled();
  for (const where of ["no", "here", "no"]) door.say(`CMSG wanted\0${where} a`);
  await settled();
  assert.deepEqual(told, [true]);
  goOn?.();
  await settled();
  assert.deepEqual(told, [true, false]);
  door.say("CMSG wanted\0here a");
  await bus.close();
  goOn?.();
  await settled();
  assert.deepEqual(told, [true, false]);
});

test("a callback ends its watch and begins another", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  /** @type {string[]} */
  const told = [];
  await bus.watch("a", async (pattern) => {
    told.push(pattern);
    await bus.unwatch(pattern);
    await bus.watch("b", (other) => void told.push(other));
  });
  door.say("CMSG wanted\0here a");
  while (!door.seen.includes("CMSG watch\0b")) await settled();
  for (const pattern of ["a", "b"]) door.say(`CMSG wanted\0no ${pattern}`);
  await settled();
  assert.deepEqual(told, ["a", "b"]);
  await assert.rejects(bus.watch("c", /** @type {any} */ (undefined)), { code: "invalid" });
  await bus.close();
  await assert.rejects(bus.unwatch("b"), { code: "closed" });
});

test("a watch that was given up is not told, nor asked for again", async () => {
  let isSilent = true;
  const door = new FakeDoor((packet) => isSilent && packet.startsWith("CMSG watch"));
  const bus = await door.connect();
  const giveUp = new AbortController();
  const told = () => assert.fail("it was given up");
  const given = assert.rejects(bus.watch("a", told, { signal: giveUp.signal }), { name: "AbortError" });
  while (!door.seen.includes("CMSG watch\0a")) await settled();
  giveUp.abort();
  await given;
  isSilent = false;
  door.say("CMSG watch\0a");
  door.say("CMSG wanted\0here a");
  await bus.barrier();
  await bus.watch("b", () => {});
  door.end("");
  while (door.seen.filter((packet) => packet === "CMSG watch\0b").length < 2) await settled();
  assert.equal(door.seen.filter((packet) => packet === "CMSG watch\0a").length, 1);
  assert.equal(door.seen.filter((packet) => packet === "CMSG unwatch\0a").length, 1);
  await bus.close();
});

test("a watch given up ends no other call", async () => {
  const door = new FakeDoor((packet) => packet.includes("watch\0"));
  const asked = () => door.seen.filter((packet) => packet.includes("watch\0"));
  const bus = await door.connect();
  const giveUp = [1, 2, 3].map(() => new AbortController());
  const givenUp = (/** @type {string} */ pattern, /** @type {number} */ at) =>
    assert.rejects(bus.watch(pattern, () => {}, { signal: giveUp[at].signal }), { name: "AbortError" });
  /** @type {boolean[]} */
  const told = [];
  const given = givenUp("a", 0);
  const kept = bus.watch("a", (_, wanted) => void told.push(wanted));
  while (asked().length < 2) await settled();
  giveUp[0].abort();
  await given;
  for (const packet of asked()) door.say(packet);
  await kept;
  door.say("CMSG wanted\0here a");
  await bus.barrier();
  assert.deepEqual([asked(), told], [["CMSG watch\0a", "CMSG watch\0a"], [true]]);
  const both = [givenUp("b", 1), givenUp("b", 2)];
  while (asked().length < 4) await settled();
  for (const each of giveUp) each.abort();
  await Promise.all(both);
  while (asked().length < 5) await settled();
  assert.equal(asked()[4], "CMSG unwatch\0b");
  await bus.close();
});

test("a watch given up while the daemon is away is not made later", async () => {
  const door = new FakeDoor((packet) => packet.startsWith("CMSG watch"));
  const giveUp = new AbortController();
  const onNotice = (/** @type {{kind: string}} */ { kind }) => void (kind === "disconnected" && giveUp.abort());
  const bus = await door.connect({ onNotice });
  const given = assert.rejects(bus.watch("a", () => {}, { signal: giveUp.signal }), { name: "AbortError" });
  while (!door.seen.includes("CMSG watch\0a")) await settled();
  door.end("");
  await given;
  await bus.barrier();
  assert.equal(door.seen.filter((packet) => packet === "CMSG watch\0a").length, 1);
  await bus.close();
});

test("to end a watch ends one that was asked for before", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  /** @type {string[]} */
  const told = [];
  const tell = (/** @type {string} */ pattern) => void told.push(pattern);
  const calls = [bus.watch("a", tell), bus.watch("b", tell), bus.unwatch("a"), bus.unwatch("b"), bus.watch("b", tell)];
  await Promise.all(calls);
  for (const pattern of ["a", "b"]) door.say(`CMSG wanted\0here ${pattern}`);
  await bus.barrier();
  assert.deepEqual(told, ["b"]);
  await bus.close();
});

test("what is ended while a greeting asks for it is ended after that", async () => {
  /** @type {string[]} */
  const withheld = [];
  let isSilent = false;
  const door = new FakeDoor((packet) => isSilent && withheld.push(packet) > 0);
  const bus = await door.connect();
  await bus.watch("a", () => {});
  await bus.watch("b", () => {});
  const subscription = await bus.subscribe("c");
  isSilent = true;
  door.end("");
  while (withheld.length < 4) await settled();
  const giveUp = new AbortController();
  const given = [
    bus.unwatch("a", { signal: giveUp.signal }),
    bus.unwatch("b", { signal: giveUp.signal }),
    bus.watch("b", () => {}, { signal: giveUp.signal }),
    subscription.close({ signal: giveUp.signal }),
  ].map((each) => assert.rejects(each, { name: "AbortError" }));
  giveUp.abort();
  await Promise.all(given);
  assert.deepEqual(withheld, ["CMSG watch\0a", "CMSG watch\0b", "SUB c", "CMSG whoami"]);
  isSilent = false;
  for (const packet of ["CMSG watch\0a", "CMSG watch\0b", "CMSG whoami\0here/test/1"]) door.say(packet);
  await bus.barrier();
  const said = door.seen.slice(door.seen.lastIndexOf("CMSG whoami") + 1);
  assert.deepEqual(said.sort(), ["CMSG ping", "CMSG ping", "CMSG unwatch\0a", "CMSG unwatch\0b", "UNSUB c"]);
  await bus.close();
});
