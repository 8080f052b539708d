import assert from "node:assert/strict";
import test from "node:test";

import { Tail } from "../../../bccnd/mux/page/tail.js";

const at = new Date(0);
const shown = (tail) => tail.lines.map(({ message }) => message.channel);
const message = (channel, text = "") => ({ channel, text });

test("the latest stay", () => {
  const tail = new Tail(3);
  for (const channel of "abcde") tail.note(message(channel), at);
  assert.deepEqual(shown(tail), ["c", "d", "e"]);
});

test("a pause holds what is seen and counts what passes", () => {
  const tail = new Tail();
  tail.note(message("a"), at);
  tail.pause(true);
  tail.note(message("b"), at);
  assert.deepEqual([shown(tail), tail.passed], [["a"], 1]);
  tail.pause(false);
  tail.note(message("c"), at);
  assert.deepEqual([shown(tail), tail.passed], [["a", "c"], 0]);
});

test("a pattern holds for old lines, and a text for old and new ones", () => {
  const tail = new Tail();
  const all = [message("a/x", "one"), message("a/y", "two"), message("b/x", "one")];
  for (const each of all) tail.note(each, at);
  tail.filter("a/>", "");
  assert.deepEqual(shown(tail), ["a/x", "a/y"]);
  tail.filter(">", "one");
  assert.deepEqual(shown(tail), ["a/x"]);
  for (const each of all) tail.note(each, at);
  assert.deepEqual(shown(tail), ["a/x", "a/x", "b/x"]);
});

test("what a text hides is shown again without it, and what is older than the rest stays", () => {
  const tail = new Tail(3);
  tail.note(message("rare", "one"), at);
  tail.filter(">", "one");
  for (const channel of "abc") tail.note(message(channel, "two"), at);
  assert.deepEqual(shown(tail), ["rare"]);
  tail.filter(">", "onee");
  assert.deepEqual(shown(tail), []);
  tail.filter(">", "");
  assert.deepEqual(shown(tail), ["a", "b", "c"]);
});
