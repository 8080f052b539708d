import assert from "node:assert/strict";
import test from "node:test";

import { gatewayRows, LINK_HEADS, linkRows, PARTS_LIMIT, PROGRAMS_LIMIT, Taken } from "../../../bccnd/mux/page/links.js";

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

test("a gateway is a row that names the peers in trouble", () => {
  const from = (src, value) => ({ src, payload: part(value) });
  const rows = gatewayRows([
    from("a", { gateway: "a", state: "up", bus: "bccn", peers: 2, lost: { slow: 3 }, more_troubles: 9 }),
    from("a", { gateway: "a", trouble: { peer: "tcp://arm:1", kind: "away" } }),
    from("a", { gateway: "a", trouble: { peer: "tcp://cam:1", kind: "slow" } }),
    from("b", { gateway: "b", state: "up", peers: 0, lost: {} }),
    from("c", { gateway: "b", trouble: { peer: "tcp://forged:1", kind: "away" } }),
    from("c", { gateway: "a", state: "forged" }),
    from("c", { gateway: 1, state: "up" }),
    from("d", { gateway: "d", state: "up", bus: {}, peers: "1", lost: [], more_troubles: "1", trouble: 7 }),
  ]);
  assert.deepEqual(texts(rows), [
    ["a", "bccn", "11 in trouble", "", "", "", "3", "2 peers; tcp://arm:1 away, tcp://cam:1 slow and 9 more"],
    ["b", "", "up", "", "", "", "0", "0 peers"],
    ["d", "", "up", "", "", "", "0", ""],
  ]);
  assert.equal(rows[0].length, LINK_HEADS.length);
  assert.deepEqual(rows.map((row) => row[2].isWarning), [true, false, false]);
});

test("who replies without end takes nobody else's room", () => {
  const taken = new Taken();
  const said = part({ gateway: "honest", state: "up", peers: 1 });
  for (let number = 0; number < 5000; number++) taken.take({ src: "liar", payload: said });
  taken.take({ src: "honest", payload: said });
  taken.take({ src: "long", payload: new Uint8Array(5000) });
  assert.equal(taken.replies.length, PARTS_LIMIT + 1);
  assert.equal(gatewayRows(taken.replies).length, 1);
  for (let number = 0; number < 5000; number++) taken.take({ src: `${number}`, payload: said });
  assert.equal(taken.replies.length, PARTS_LIMIT + PROGRAMS_LIMIT - 1);
  taken.take({ src: "honest", payload: said });
  assert.equal(taken.replies.at(-1).src, "honest");
});
