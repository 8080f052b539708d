/** What the daemon answers in JSON: of itself, of clients, of sources. */

import { ProtocolError } from "./errors.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").Patience} Patience */

/**
 * All rows of a table, which comes in pages.
 * @param {Session} session
 * @param {string} key
 * @param {Patience} [patience]
 * @returns {Promise<any[]>}
 */
export async function rowsOf(session, key, patience) {
  const rows = [];
  for (let cursor; cursor !== null; ) {
    const page = await answerOf(session, key, cursor, patience);
    rows.push(...page[key]);
    cursor = page.next === null ? null : String(page.next);
  }
  return rows;
}

/**
 * @param {Session} session
 * @param {string} key
 * @param {string | undefined} value
 * @param {Patience} [patience]
 * @returns {Promise<any>}
 */
export async function answerOf(session, key, value, patience) {
  const answer = await session.ask(key, value, patience);
  try {
    return JSON.parse(answer);
  } catch {
    throw new ProtocolError(`the daemon answered ${key} with what is no JSON`);
  }
}
