import assert from "node:assert/strict";
import test from "node:test";

import { BYTES_SHOWN, rate, shown } from "../../../bccnd/mux/page/shown.js";

const bytes = (text) => new TextEncoder().encode(text);

test("a payload has three forms", () => {
  assert.equal(shown(bytes('{"a":[1]}'), "text"), '{"a":[1]}');
  assert.equal(shown(bytes('{"a":[1]}'), "JSON"), '{\n  "a": [\n    1\n  ]\n}');
  assert.equal(shown(bytes("no {json"), "JSON"), "no {json");
  assert.equal(shown(new Uint8Array([0, 255, 16]), "hex"), "00 ff 10");
});

test("what could deceive is escaped", () => {
  assert.equal(shown(bytes("a\nb\u0000\u001b[2J\u202eabc\u200b"), "text"), "a\\u000ab\\u0000\\u001b[2J\\u202eabc\\u200b");
  assert.equal(shown(bytes('"\u202e"'), "JSON"), '"\\u202e"');
});

test("a long payload says how much is missing", () => {
  for (const form of ["text", "JSON", "hex"]) {
    assert.match(shown(new Uint8Array(BYTES_SHOWN + 7).fill(49), form), / … and 7 bytes$/);
  }
});

test("a rate has no more digits than it means", () => {
  assert.deepEqual([0, 0.04, 0.26, 9.94, 12.4, 12345].map(rate), ["0", "0", "0.3", "9.9", "12", "12,345"]);
});
