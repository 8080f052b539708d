import assert from "node:assert/strict";
import test from "node:test";

import { examined } from "../../../bccnd/mux/page/findings.js";

const finding = (level, what) => ({ level, what, finding: `${what} is so`, remedy: "" });

test("problems come first, then warnings, and what is sound apart", () => {
  const { wrong, sound, sum } = examined(["ok a", "warning b", "problem c", "warning d"].map((each) => finding(...each.split(" "))));
  assert.deepEqual(wrong.map(({ what }) => what), ["c", "b", "d"]);
  assert.deepEqual(sound.map(({ what }) => what), ["a"]);
  assert.equal(sum, "1 problem, 2 warnings");
});

test("where nothing is wrong it says so", () => {
  assert.match(examined([finding("ok", "a")]).sum, /^Nothing is wrong/);
  assert.equal(examined([finding("warning", "a")]).sum, "1 warning");
});
