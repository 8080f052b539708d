import assert from "node:assert/strict";
import test from "node:test";

import { Reading, readInTurns } from "../../../bccnd/mux/page/reading.js";

test("it says how much of all it sees", () => {
  const reading = new Reading();
  for (let n = 0; n < 100; n += 1) reading.note({ lost: 0 }, n / 100);
  assert.equal(reading.share(1).samples, false);
  for (let n = 0; n < 100; n += 1) reading.note({ lost: 3 }, 1 + n / 100);
  const { seen, all, samples } = reading.share(2);
  assert.equal(samples, true);
  assert.ok(all > 2 * seen && all < 4 * seen);
  assert.equal(reading.share(8).samples, false);
});

test("it reads so many messages a turn, however fast the machine", async () => {
  let turns = 0;
  const counted = setInterval(() => (turns += 1), 0);
  async function* some() {
    for (let n = 0; n < 1001; n += 1) yield { n };
  }
  await readInTurns(some(), () => {});
  clearInterval(counted);
  assert.ok(turns >= 4);
});

test("a flood leaves the page its turns", async () => {
  let taken = 0;
  async function* flood() {
    while (taken < 1e9) yield { n: taken };
  }
  let turns = 0;
  const beat = setInterval(() => (turns += 1), 1);
  const stopped = readInTurns(flood(), () => {
    taken += 1;
    if (turns >= 20) taken = 1e9;
  });
  await stopped;
  clearInterval(beat);
  assert.ok(turns >= 20);
});
