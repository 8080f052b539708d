import assert from "node:assert/strict";
import test from "node:test";

import { LINK_HEADS, linkRows } from "../../../bccnd/mux/page/links.js";

const part = (value) => new TextEncoder().encode(JSON.stringify(value));
const texts = (rows) => rows.map((row) => row.map(({ text }) => text));

test("the parts of an answer become one row", () => {
  const rows = linkRows([
    part({ uplink: "b", link: { segment: "west" } }),
    part({ uplink: "b", segment: "east", state: "up", round_trip: 0.0123, waiting: 1, repaired: 2, losses: { link: 3, queue: 4 } }),
    part({ uplink: "a", state: "down", lost: 0 }),
    part({ uplink: "b", link: { segment: "north" } }),
  ]);
  assert.deepEqual(texts(rows), [
    ["a", "", "down", "", "", "", "0", ""],
    ["b", "east", "up", "12.3 ms", "1", "2", "7", "north, west"],
  ]);
  assert.equal(rows[0].length, LINK_HEADS.length);
  assert.deepEqual([rows[0][2].isWarning, rows[1][2].isWarning, rows[1][6].isWarning], [true, false, true]);
});

test("what is no answer is left out", () => {
  const strange = [[], null, 7, { uplink: 1, state: "up" }, { uplink: "x", state: {} }, { uplink: "x", link: "y" }];
  assert.deepEqual(linkRows([new Uint8Array([123]), ...strange.map(part)]), []);
  const odd = part({ uplink: "x", state: "up", segment: {}, round_trip: "1", losses: { a: "1" }, waiting: [] });
  assert.deepEqual(texts(linkRows([odd])), [["x", "", "up", "", "", "", "0", ""]]);
});
