import assert from "node:assert/strict";
import test from "node:test";

import { HOST_HEADS, hostRows } from "../../../bccnd/mux/page/hosts.js";

const source = (src, more) => ({ src, peer: "10.0.0.2:5400", received: 90, lost: 0, repaired: 0, silent: 1, state: "alive", ...more });
const texts = (rows) => rows.map(({ cells }) => cells.map(({ text }) => text));

test("hosts that lose most come first, with the sum of their sources", () => {
  const rows = hostRows(
    [
      source("b/x/1", { repaired: 7, state: null }),
      source("a/x/1", { lost: 10, silent: 300 }),
      source("a/y/2", { received: 910, lost: 10, repaired: 5, silent: 2, peer: "10.0.0.3:5400" }),
      source("c/x/1"),
      source("here/gone/1", { peer: "" }),
    ],
    new Set(),
  );
  assert.deepEqual(texts(rows), [
    ["a (2)", "20", "2.0 %", "5", "2.0 s", "", "10.0.0.2:5400, 10.0.0.3:5400"],
    ["b (1)", "0", "", "7", "1.0 s", "", "10.0.0.2:5400"],
    ["c (1)", "0", "", "0", "1.0 s", "", "10.0.0.2:5400"],
  ]);
  assert.deepEqual(rows.map(({ key, isOpen }) => [key, isOpen]), [["a", false], ["b", false], ["c", false]]);
  assert.equal(rows[0].cells.length, HOST_HEADS.length);
  assert.deepEqual([rows[0].cells[1].isWarning, rows[1].cells[1].isWarning], [true, false]);
});

test("the sources of a host that is open follow it, those that lose first", () => {
  const all = [source("a/x/1"), source("a/y/2", { lost: 90, state: "silent" }), source("b/z/3")];
  const rows = hostRows(all, new Set(["a", "gone"]));
  assert.deepEqual(rows.map(({ cells, isPart }) => [cells[0].text, isPart ?? false]), [
    ["a (2)", false], ["a/y/2", true], ["a/x/1", true], ["b (1)", false],
  ]);
  assert.deepEqual([rows[0].cells[5], rows[1].cells[5]].map(({ text, isWarning }) => [text, isWarning]), [
    ["1 silent", true], ["silent", true],
  ]);
  assert.equal(rows[1].cells[2].text, "50.0 %");
  assert.equal(new Set(rows.map(({ key }) => key)).size, rows.length);
});

test("a source of another segment says by whom it comes", () => {
  const [host] = hostRows([source("far/x/1", { relayed: { host: "gate", address: "10.0.0.9" } })], new Set());
  assert.equal(host.cells[6].text, "by gate");
});
