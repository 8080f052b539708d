import assert from "node:assert/strict";
import test from "node:test";

import { faultOf, rejectionOf } from "../../../bccnd/mux/page/faults.js";

test("a wrong pattern comes with the reason, the rule and what is followed", () => {
  const error = { code: "bad-pattern", text: "SUB a/*x: '*' must be followed by '/' or the end", message: "..." };
  const said = faultOf("a/*x", error, "a/>");
  assert.match(said, /^a\/\*x is no pattern: '\*' must be followed by '\/' or the end\. A \* at .* The tail still shows a\/>\.$/);
});

test("a right that is lacking is said, and nothing of what is not there", () => {
  assert.equal(faultOf(">", { code: "refused" }, ""), "Your token has no right to >.");
  assert.equal(faultOf("a\u202e", { code: "refused" }, "b"), "Your token has no right to a\\u202e. The tail still shows b.");
});

test("what else fails is said as it is", () => {
  assert.equal(faultOf("a", { code: "timeout", message: "the daemon does not answer" }, ""), "the daemon does not answer.");
});

test("what is not published is said without the packet of the protocol", () => {
  const said = (error) => rejectionOf("a b", error);
  const text = "MSG a b: a channel is ASCII without white space";
  assert.equal(said({ code: "bad-channel", text, message: `${text} (bad-channel)` }), "Not published on a b: a channel is ASCII without white space.");
  assert.equal(said({ code: "refused", text: "MSG a b: no" }), "Your token has no right to publish on a b.");
  assert.equal(said({ code: "timeout", message: "too late" }), "too late");
});
