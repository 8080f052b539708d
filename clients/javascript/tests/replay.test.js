/** Replays with a door in memory: what comes of them, credit, and how they end. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { FakeDoor, settled } from "./fake_door.js";

const WINDOW = 8192;
const LONG = "x".repeat(1000);

/** @param {number} number @param {string} [text] */
const recorded = (number, text = "x") => `RECV local ${1000 + number} ok\0BCCN1[9]here/a:${number}:a|${text}`;

/** What a door is asked to replay, once it is. @param {FakeDoor} door */
async function asked(door) {
  while (!door.stream) await settled();
  return door.asked;
}

test("a replay gives what was recorded, says what is missing, and ends", async () => {
  const door = new FakeDoor();
  /** @type {import("../src/notices.js").Notice[]} */
  const notices = [];
  const bus = await door.connect({ onNotice: (notice) => notices.push(notice) });
  const replayed = bus.replay("a/>", { from: "-10m", to: new Date(1500) });
  const first = replayed.next();
  assert.equal(await asked(door), "REPLAY -10m 1970-01-01T00:00:01.500Z a/>");
  door.tell("CMSG unrecorded\x000 1000000000 nothing was recorded", recorded(1), "CMSG dropped\x003", recorded(5));
  const one = (await first).value;
  assert.deepEqual([one?.seq, one?.timeNs, one?.text, one?.lost], [1n, 1001n, "x", 0]);
  assert.equal((await replayed.next()).value?.lost, 3);
  door.endStream();
  assert.equal((await replayed.next()).done, true);
  await settled();
  assert.deepEqual(
    notices.map((each) => [each.kind, each.text]),
    [
      ["unrecorded", "1970-01-01T00:00:00.000Z to 1970-01-01T00:00:01.000Z: nothing was recorded"],
      ["lost", "3 lost: messages came faster than they were read"],
    ],
  );
  await bus.close();
});

test("a replay that is not read gets no credit, and one that is left ends", async () => {
  const door = new FakeDoor();
  const bus = await door.connect({ window: WINDOW });
  const replayed = bus.replay("a", { from: 1_000, to: 2_500_000_001n });
  const first = replayed.next();
  assert.equal(await asked(door), "REPLAY 1.000 2.500000001 a");
  for (let i = 0; i < 40; i++) door.tell(recorded(i, LONG));
  assert.equal((await first).value?.seq, 0n);
  await settled();
  assert.ok(door.queued > 40_000 - 2 * WINDOW, `${door.queued} bytes wait in the door`);
  for (let i = 1; i < 40; i++) assert.equal((await replayed.next()).value?.seq, BigInt(i));
  assert.equal(door.queued, 0);
  await replayed.return();
  while (door.stream) await settled();
  await bus.close();
});

test("a replay fails with what the door has against it", async () => {
  const door = new FakeDoor();
  const bus = await door.connect();
  const fails = async (/** @type {string} */ reason, /** @type {object} */ error) => {
    const next = bus.replay("a", { from: 0 }).next();
    assert.equal(await asked(door), "REPLAY 0.000  a");
    door.tell(recorded(1));
    door.endStream(reason);
    assert.equal((await next).value?.seq, 1n);
    const again = assert.rejects(bus.replay("a", { from: 0 }).next(), error);
    await asked(door);
    door.endStream(reason);
    await again;
  };
  await fails("refused SUB a: no", { code: "refused" });
  await fails("bad-value soon: must be ISO 8601", { code: "bad-value" });
  await fails("limit: this user has too many replays", { code: "limit", message: "this user has too many replays (limit)" });
  for (const from of ["", "1 2", Number.NaN, -1, new Date(Number.NaN), {}]) {
    await assert.rejects(bus.replay("a", { from: /** @type {any} */ (from) }).next(), { code: "invalid" });
  }
  await assert.rejects(bus.replay("a b", { from: 0 }).next(), { code: "invalid" });
  const giving = new AbortController();
  const waiting = assert.rejects(bus.replay("a", { from: 0 }, { signal: giving.signal }).next(), { name: "AbortError" });
  await asked(door);
  giving.abort();
  await waiting;
  while (door.stream) await settled();
  const last = assert.rejects(bus.replay("a", { from: 0 }).next(), { code: "closed" });
  await asked(door);
  await bus.close();
  await last;
});
