import assert from "node:assert/strict";
import test from "node:test";

import { Answering, PATIENCE } from "../../../bccnd/mux/page/answering.js";

test("a daemon is late that owes an answer, and not one that was asked nothing", () => {
  const answering = new Answering();
  assert.equal(answering.isLate(1000), false);
  answering.asked(0);
  answering.asked(PATIENCE);
  assert.equal(answering.isLate(PATIENCE), false);
  assert.equal(answering.isLate(PATIENCE + 1), true);
  const when = new Date(0);
  answering.answered(when);
  assert.deepEqual([answering.isLate(1000), answering.last], [false, when]);
});

test("what was asked on a connection that has ended is owed no more", () => {
  const answering = new Answering();
  answering.asked(0);
  answering.forget();
  assert.equal(answering.isLate(1000), false);
});
