import assert from "node:assert/strict";
import test from "node:test";

import { CLIENT_HEADS, clientRows, SOURCE_HEADS, sourceRows } from "../../../bccnd/mux/page/figures.js";

const client = (name, row) => ({ name, slow: null, queued: 0, dropped: 0, delivered: 0, published: 0, policy: "block", ...row });
const source = (src, row) => ({ src, peer: "127.0.0.1:1", lost: 0, repaired: 0, silent: 0, state: null, ...row });

test("slow clients come first, then those that lost", () => {
  const rows = clientRows([client("a", {}), client("b", { queued: 5 }), client("c", { dropped: 1 }), client("d", { slow: 0 }), client("e", { slow: 9 })]);
  assert.deepEqual(rows.map(([name]) => name.text), ["e", "d", "c", "b", "a"]);
  assert.equal(rows[0][1].text, "slow for 9.0 s");
  assert.equal(rows[4][1].text, "");
  assert.equal(rows[0].length, CLIENT_HEADS.length);
});

test("sources that lost most come first", () => {
  const rows = sourceRows([source("b", {}), source("a", { silent: 300, state: "silent" }), source("c", { lost: 2, repaired: 1 })]);
  assert.deepEqual(rows.map(([src]) => src.text), ["c", "a", "b"]);
  assert.deepEqual(rows[1].slice(4).map(({ text, isWarning }) => [text, isWarning ?? false]), [["5 min", false], ["silent", true]]);
  assert.equal(rows[0].length, SOURCE_HEADS.length);
});
