/** The client with a door in memory: credit, cancellation, connections that break. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { BccnError } from "../src/errors.js";
import { FakeDoor, settled } from "./fake_door.js";

const WINDOW = 8192;
const LONG = "x".repeat(1000);

/** Has a daemon say more than the window holds, on a channel. @param {FakeDoor} door @param {number} count */
function flood(door, count) {
  for (let i = 0; i < count; i++) door.say(`MSG a\0${LONG}`);
}

test("what nobody reads gets no credit, and reading gives it again", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ window: WINDOW });
  const readings = await bus.subscribe("a");
  flood(door, 40);
  await settled();
  const waiting = door.queued;
  assert.ok(waiting > 40_000 - 2 * WINDOW, `${waiting} bytes wait in the door`);
  let came = 0;
  for await (const message of readings) {
    assert.equal(message.payload.length, LONG.length);
    if (++came === 40) break;
  }
  await settled();
  assert.equal(door.queued, 0);
  await bus.close();
});

test("a call is answered although nobody reads", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ window: WINDOW });
  await bus.subscribe("a");
  flood(door, 40);
  await bus.barrier();
  for (let i = 0; i < 40; i++) assert.ok(await bus.receive({ timeout: 0 }));
  assert.equal(await bus.receive({ timeout: 0 }), undefined);
  await bus.close();
});

test("a slow callback holds the daemon, one message at a time", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ window: WINDOW });
  let [running, most, called] = [0, 0, 0];
  await bus.subscribe("a", async () => {
    most = Math.max(most, ++running);
    await settled();
    running--;
    called++;
  });
  flood(door, 40);
  await settled();
  assert.ok(door.queued > 0);
  while (called < 40) await settled();
  assert.equal(most, 1);
  await bus.close();
});

test("one subscription without a reader holds those of the same client", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ window: WINDOW });
  const [unread, read] = [await bus.subscribe("a"), await bus.subscribe("b")];
  await read.receive({ timeout: 0 });
  flood(door, 40);
  door.say("MSG b\0here");
  assert.equal(await read.receive({ timeout: 20 }), undefined);
  await unread.close(); // what waits for it is dropped
  assert.equal((await read.receive())?.text, "here");
  await bus.close();
});

test("an AbortSignal ends whatever waits, and leaves nothing", async () => {
  const silent = new FakeDoor((packet) => /^(SUB|CMSG (ping|listen))/.test(packet));
  const bus = await silent.connect();
  const reason = new Error("given up");
  for (const work of [
    (/** @type {AbortSignal} */ signal) => bus.subscribe("a", { signal }),
    (/** @type {AbortSignal} */ signal) => bus.subscribe("a", () => {}, { signal }),
    (/** @type {AbortSignal} */ signal) => bus.listen({ signal }),
    (/** @type {AbortSignal} */ signal) => bus.barrier({ signal }),
    (/** @type {AbortSignal} */ signal) => bus.receive({ signal }),
    (/** @type {AbortSignal} */ signal) => bus.request("a", "?", { signal }),
    (/** @type {AbortSignal} */ signal) => bus.setName("b", { signal }).then(() => bus.barrier({ signal })),
  ]) {
    const giving = new AbortController();
    const waiting = assert.rejects(work(giving.signal), reason, String(work));
    await settled();
    giving.abort(reason);
    await waiting;
    await assert.rejects(work(giving.signal), reason, `${work}, when it is aborted before`);
  }
  await settled();
  assert.deepEqual(silent.seen.filter((packet) => /SUB/.test(packet)), ["SUB a", "UNSUB a", "SUB a", "UNSUB a"]);
  await bus.close();
});

test("an AbortSignal ends connect, and a publish without room", async () => {
  const away = new FakeDoor();
  away.refusal = "unavailable no daemon at /bus";
  const reason = new Error("given up");
  await assert.rejects(away.connect({ wait: 60_000, signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
  const door = new FakeDoor();
  const bus = await door.connect();
  door.end("unavailable the daemon went away");
  door.refusal = "unavailable no daemon";
  await settled();
  const giving = new AbortController();
  const waiting = assert.rejects(bus.publish("a", "never sent", { signal: giving.signal }), reason);
  giving.abort(reason);
  await waiting;
  door.refusal = "";
  await bus.publish("a", "sent");
  await bus.barrier();
  assert.deepEqual(door.seen.filter((packet) => packet.startsWith("MSG")), ["MSG a\0sent"]);
  await bus.close();
});

test("a daemon that goes away is reached again by the same link", async () => {
  const door = new FakeDoor();
  /** @type {string[]} */
  const told = [];
  const bus = await door.connect({ format: "full", onNotice: (notice) => told.push(`${notice}`) });
  const readings = await bus.subscribe("a");
  door.end("unavailable the daemon went away");
  await bus.barrier();
  door.say("RECV local 7 ok\0BCCN1[5]x:1:a|");
  assert.equal((await readings.receive())?.src, "x");
  assert.equal(door.links, 1);
  assert.deepEqual(door.seen.slice(-4, -1).concat(door.seen.slice(-1)), ["CMSG format\0full", "SUB a", "CMSG whoami", "CMSG ping"]);
  assert.deepEqual(told, ["the daemon went away", "connected to the daemon again"]);
  await bus.close();
});

test("a link that breaks is made again", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  door.hangUp();
  await settled();
  await bus.barrier();
  assert.equal(door.links, 2);
  await bus.close();
});

test("without reconnect, what waits is received, and then it is over", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ reconnect: false });
  await bus.subscribe("a");
  door.say("MSG a\0last words");
  door.end("unavailable the daemon went away");
  await settled();
  assert.equal((await bus.receive())?.text, "last words");
  await assert.rejects(bus.receive(), { code: "unavailable" });
  await assert.rejects(bus.publish("a", ""), { code: "unavailable" });
  assert.ok(!door.isLinked);
  await bus.close();
});

test("what does not speak bpmux is named", async () => {
  const door = new FakeDoor(() => true);
  const failing = assert.rejects(door.connect(), { code: "protocol" });
  await settled();
  door.blurt(Buffer.from("HTTP/1.1 400 Bad Request\r\n"));
  await failing;
});

test("a door that opens something is refused", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  const opened = door.open();
  await settled();
  assert.ok(opened?.isOver);
  await bus.barrier();
  await bus.close();
});

test("a daemon that refuses this program is an error of connect", async () => {
  const door = new FakeDoor();
  door.refusal = "refused no right to anything";
  await assert.rejects(door.connect({ wait: 60_000 }), { code: "refused", name: "RefusedError" });
});

test("where too many programs are, connect says so, and tries again for a while", async () => {
  const door = new FakeDoor();
  door.refusal = "limit: at most 1 clients";
  await assert.rejects(door.connect(), { code: "limit", name: "RejectedError", message: "at most 1 clients (limit)" });
  const waiting = door.connect({ wait: 60_000 });
  await settled();
  door.refusal = "";
  await (await waiting).close();
});

test("messages published in one turn share a write", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  const before = door.writes;
  for (let i = 0; i < 100; i++) await bus.publish("a", `${i}`);
  await bus.barrier();
  assert.ok(door.writes - before < 10, `${door.writes - before} writes`);
  assert.equal(door.seen.filter((packet) => packet.startsWith("MSG")).length, 100);
  await bus.close();
});

test("what was published goes before close", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  await bus.publish("a", "last words");
  await bus.close();
  await settled();
  assert.equal(door.seen.at(-1), "MSG a\0last words");
  await assert.rejects(bus.publish("a", ""), { code: "closed" });
});

test("a batch shares packets, and goes at the end of its block", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ pack: true });
  const batch = bus.batch();
  for (let i = 0; i < 3; i++) await batch.publish("a", `${i}`);
  await batch[Symbol.asyncDispose]();
  await bus.barrier();
  assert.equal(door.seen.filter((packet) => packet.startsWith("PACK ")).length, 1);
  await bus.close();
});

test("disposal waits for what was published, and says what was rejected", async () => {
  const door = new FakeDoor((packet, { say }) => {
    if (packet.startsWith("MSG")) say.call(door, "CMSG error\0refused MSG a: no right");
  });
  const bus = await door.connect();
  await bus.publish("a", "");
  await assert.rejects(bus[Symbol.asyncDispose](), { code: "refused" });
  await assert.rejects(bus.barrier(), { code: "closed" });
});

test("several requests are served at once, if that is wanted", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ format: "full" });
  let [running, most] = [0, 0];
  await bus.serve("a", async (request) => {
    most = Math.max(most, ++running);
    await settled();
    running--;
    return request.text.toUpperCase();
  }, { concurrency: 3 });
  for (let i = 0; i < 9; i++) door.say(`RECV local 7 ok\0BCCN1[5]x:${i}:a|t${i}\nquestion ${i}`);
  while (door.seen.filter((packet) => packet.startsWith("MSG !x")).length < 9) await settled();
  assert.equal(most, 3);
  assert.ok(door.seen.includes("MSG !x\0t4\nQUESTION 4"));
  await bus.close();
});

test("listeners of a subscription come and go", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  const readings = await bus.subscribe("a");
  /** @type {string[]} */
  const heard = [];
  const first = (/** @type {import("../bccn.js").Message} */ message) => void heard.push(`first ${message.text}`);
  const second = (/** @type {import("../bccn.js").Message} */ message) => void heard.push(`second ${message.text}`);
  door.say("MSG a\x001");
  readings.on("message", first);
  await settled();
  readings.on("message", second);
  door.say("MSG a\x002");
  await settled();
  readings.off("message", first).off("message", second);
  door.say("MSG a\x003");
  assert.equal((await readings.receive())?.text, "3");
  assert.deepEqual(heard, ["first 1", "first 2", "second 2"]);
  await bus.close();
});

test("what nobody ever receives stops no callback", async () => {
  const door = new FakeDoor();
  /** @type {string[]} */
  const told = [];
  const bus = await door.connect({ onNotice: ({ kind }) => void told.push(kind) });
  let called = 0;
  await bus.subscribe("a", () => called++);
  await bus.listen(() => {});
  for (let i = 0; i < 400; i++) door.say(`MSG b\0${LONG}`); // it matches nothing that is held
  await settled();
  door.say("MSG a\0x");
  while (!called) await settled();
  assert.ok(told.every((kind) => kind === "unclaimed") && told.length);
  await bus.close();
});

test("listeners of notices get their kind", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  /** @type {string[]} */
  const heard = [];
  bus.on("lost", ({ count }) => void heard.push(`lost ${count}`)).on("notice", ({ kind }) => void heard.push(kind));
  door.say("CMSG dropped\x003");
  door.say("CMSG revoked\0CMSG listen");
  await settled();
  assert.deepEqual(heard, ["lost", "lost 3", "revoked"]);
  assert.equal(bus.lost, 3);
  await bus.close();
});

test("options that cannot be are invalid", async () => {
  const door = new FakeDoor();
  for (const options of [{ format: "lines" }, { separator: ":" }, { tap: "yes" }, { timeout: -1 }, { window: 1 }, { formt: "full" }]) {
    await assert.rejects(door.connect(/** @type {any} */ (options)), { code: "invalid" }, JSON.stringify(options));
  }
  assert.equal(door.links, 0);
  await assert.rejects(door.connect(/** @type {any} */ ({ Queue: {} })), /^InvalidError: no option Queue: there are address, /);
});

test("whatever a door sends, the client goes on or names a fault", async () => {
  const spoken = ["MSG a\0x", "RECV local 7 ok\0BCCN1[5]x:1:a|", "CMSG pong\0", "CMSG error\0refused MSG a: no", "CMSG dropped\x003"];
  let seed = 1;
  const random = (/** @type {number} */ below) => (seed = (seed * 48271) % 0x7fffffff) % below;
  for (let round = 0; round < 60; round++) {
    const door = new FakeDoor();
    const bus = await door.connect({ reconnect: false, timeout: 30_000 });
    await bus.subscribe("a");
    for (let i = 0; i < 10; i++) {
      const packet = Buffer.from(spoken[random(spoken.length)]);
      const chunk = Buffer.concat([Uint8Array.of(0x70, 0, packet.length), packet]);
      if (random(3) === 0) chunk[random(chunk.length)] = random(256);
      door.blurt(chunk);
    }
    await bus.barrier({ timeout: 20 }).catch((error) => assert.ok(error instanceof BccnError, String(error?.stack)));
    await bus.close();
  }
});

test("a daemon that never stops takes no more memory than the window", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ window: 65536 });
  const readings = await bus.subscribe("a");
  await readings.receive({ timeout: 0 });
  for (let i = 0; i < 8; i++) {
    for (let said = 0; said < 10_000 && door.queued < 200_000; said++) door.say("MSG a\0x");
    await settled();
  }
  assert.ok(readings.pending < 65536 / 7 + 65536 / 256, `${readings.pending} messages wait`);
  await bus.close();
});

test("a question to the door itself is answered, refused or given up", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ reconnect: false });
  const found = { problems: 0, warnings: 0, findings: [] };
  door.answers.doctor = JSON.stringify(found);
  assert.deepEqual(await bus.doctor(), found);
  door.answers["doctor here/a/1 here/b/2"] = "{}";
  assert.deepEqual(await bus.doctor({ without: ["here/a/1", "here/b/2"] }), {});
  delete door.answers.doctor;
  await assert.rejects(bus.doctor(), { code: "refused" });
  door.isMute = true;
  await assert.rejects(bus.doctor({ timeout: 10 }), { code: "timeout" });
  const giving = new AbortController();
  const asked = bus.doctor({ signal: giving.signal });
  giving.abort();
  await assert.rejects(asked, { name: "AbortError" });
  const last = bus.doctor();
  await settled();
  door.hangUp();
  await assert.rejects(last, { code: "unavailable" });
  await bus.close();
  await assert.rejects(bus.doctor(), { code: "closed" });
});
