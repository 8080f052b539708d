/** What a test opens is closed behind it, also where it fails: a process that has something open never ends. */

import { afterEach } from "node:test";

/** @type {Set<{close(): unknown}>} */
const all = new Set();

/**
 * @template {{close(): unknown}} T
 * @param {T} opened  may be closed before
 */
export function closedAfter(opened) {
  all.add(opened);
  return opened;
}

afterEach(() => {
  for (const each of all) each.close();
  all.clear();
});
