/** Why a pattern is not followed, in words for whoever typed it. */

import { line } from "./shown.js";

const RULE = "A * at the end of a part stands for its rest, a > at the end for all that follows, as in sensors/* and sensors/>.";

/**
 * @param {string} pattern
 * @param {any} error  what the daemon has against it: its `text` begins with the packet
 * @param {string} last  the pattern that is still followed
 */
export function faultOf(pattern, error, last) {
  const still = last ? `The tail still shows ${last}.` : "";
  if (error.code === "refused") return `Your token has no right to ${line(pattern)}. ${still}`.trim();
  if (error.code !== "bad-pattern") return `${error.message}. ${still}`.trim();
  const reason = error.text.slice(`SUB ${pattern}: `.length);
  return `${line(pattern)} is no pattern: ${line(reason)}. ${RULE} ${still}`.trim();
}
