import assert from "node:assert/strict";
import test from "node:test";

import { CLIENT_HEADS, clientRows, number, seconds } from "../../../bccnd/mux/page/figures.js";

const client = (name, more) => ({ name, slow: null, queued: 0, dropped: 0, delivered: 5, published: 1, policy: "block", ...more });

test("clients that are slow come first, then those that lost", () => {
  const all = [client("a"), client("b", { queued: 9 }), client("c", { dropped: 1234 }), client("d", { slow: 2.55 })];
  const rows = clientRows(all);
  assert.deepEqual(rows.map(([{ text }]) => text), ["d", "c", "b", "a"]);
  assert.deepEqual([rows[0][1].text, rows[1][4].text, rows[1][4].isWarning], ["slow for 2.5 s", "1,234", true]);
  assert.equal(rows[0].length, CLIENT_HEADS.length);
});

test("the page itself comes last, and is no reason to worry", () => {
  const all = [client("page", { slow: 9, dropped: 5 }), client("a"), client("b", { slow: 1 })];
  const rows = clientRows(all, ["page", "other"]);
  assert.deepEqual(rows.map(([{ text }]) => text), ["b", "a", "page (this page)"]);
  assert.deepEqual(rows[2].slice(1, 5).map(({ text, isWarning }) => [text, isWarning ?? false]), [
    ["samples", false], ["0", false], ["", false], ["5", false],
  ]);
});

test("bytes of a queue are as exact as anybody wants", () => {
  const sizes = [undefined, 0, 9999, 12_345, 9_999_999, 12_345_678];
  const rows = sizes.map((queued_bytes) => clientRows([client("a", { queued_bytes })])[0][3].text);
  assert.deepEqual(rows, ["", "0", "9,999", "12 kB", "10,000 kB", "12 MB"]);
});

test("figures have no more digits than they mean", () => {
  assert.deepEqual([0.04, 119, 300, 90_000].map(seconds), ["0.0 s", "119.0 s", "5 min", "25 h"]);
  assert.deepEqual(number(1234), { text: "1,234", isNumber: true });
});
