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
