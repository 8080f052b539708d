/** Why a pattern is not followed, and a message not published, in words for whoever typed it. */

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

/**
 * @param {string} channel
 * @param {any} error  the `text` of the daemon's begins with the packet
 */
export function rejectionOf(channel, error) {
  const packet = `MSG ${channel}: `;
  if (error.code === "refused") return `Your token has no right to publish on ${line(channel)}.`;
  if (!error.text?.startsWith(packet)) return error.message ?? `${error}`;
  return `Not published on ${line(channel)}: ${line(error.text.slice(packet.length))}.`;
}
