import assert from "node:assert/strict";
import test from "node:test";

import { Rate } from "../../../bccnd/mux/page/rate.js";

test("a steady stream has its rate, from its first seconds on", () => {
  const rate = new Rate();
  for (let at = 0; at < 60; at += 0.01) {
    rate.add(1, 1000 + at);
    if (at > 2) assert.ok(Math.abs(rate.at(1000 + at) - 100) < 5, `${rate.at(1000 + at)} after ${at} s`);
  }
});

test("what has ended is forgotten", () => {
  const rate = new Rate();
  assert.equal(rate.at(5), 0);
  rate.add(1000, 5);
  assert.ok(rate.at(6) > 100);
  assert.ok(rate.at(66) < 0.01);
});
