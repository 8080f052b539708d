import assert from "node:assert/strict";
import test from "node:test";

import { DEPTH_LIMIT, Tree } from "../../../bccnd/mux/page/tree.js";

const payload = new TextEncoder().encode("21.5");
const message = (channel, { retained = false } = {}) => ({ channel, payload, retained });
const names = (tree, ...open) => tree.rows(new Set(open), 1, 100).rows.map(({ name }) => name);

test("children are seen where their parent is open", () => {
  const tree = new Tree();
  for (const channel of ["b", "a/y", "a/x/1"]) tree.note(message(channel), 0);
  assert.deepEqual(names(tree), ["a", "b"]);
  assert.deepEqual(names(tree, "a", "a/x"), ["a", "x", "1", "y", "b"]);
  assert.deepEqual(names(tree, "a/x"), ["a", "b"]);
});

test("a rate is of what was seen on a channel and below it", () => {
  const tree = new Tree();
  for (let n = 0; n < 10; n += 1) tree.note(message("a/x"), 0);
  tree.note(message("a/y"), 0);
  tree.note(message("a/y", { retained: true }), 0);
  const [a, x, y] = tree.rows(new Set(["a"]), 0, 100).rows;
  assert.ok(Math.abs(x.rate / y.rate - 10) < 1e-9);
  assert.ok(Math.abs(a.rate - x.rate - y.rate) < 1e-9);
  assert.deepEqual([a.last, a.channels], [undefined, 2]);
  assert.deepEqual([x.last, x.channels], [payload, 1]);
});

test("it holds so many, and counts what has no place", () => {
  const tree = new Tree(3);
  for (let n = 0; n < 10; n += 1) tree.note(message(`c${n}`), 0);
  assert.deepEqual([tree.size, tree.homeless], [3, 7]);
  const deep = new Tree();
  deep.note(message("a/".repeat(500)), 0);
  assert.equal(deep.size, DEPTH_LIMIT);
});

test("rows end where there is no room", () => {
  const tree = new Tree();
  for (let n = 0; n < 10; n += 1) tree.note(message(`c${n}`), 0);
  const { rows, more } = tree.rows(new Set(), 0, 4);
  assert.deepEqual([rows.length, more], [4, 6]);
});
