/** A question to the door itself, not to the daemon behind it (clients/BPMUX.md, "Sessions"). */

import { TimedOutError, UnavailableError } from "./errors.js";
import { decoded } from "./protocol.js";
import { now, Pending, wait } from "./waiting.js";

/**
 * Returns the door's answer. Throws the reason for which it gives none.
 * @param {import("./session.js").Session} session
 * @param {string} question
 * @param {{timeout: number, signal?: AbortSignal}} patience
 */
export async function errand(session, question, { timeout, signal }) {
  const deadline = now() + timeout;
  await session.available({ timeout, signal });
  const { link } = session;
  if (!link) throw new UnavailableError("there is no connection to the door");
  const answer = new Pending();
  let text = "";
  const request = link.request(question, {
    message: (payload) => void (text = decoded(payload)),
    end: (error) => answer.finish(error ?? undefined),
  });
  try {
    await wait(answer, deadline, signal);
  } finally {
    link.leave(request);
  }
  if (answer.error) throw answer.error;
  if (!answer.done) throw new TimedOutError("the door does not answer, or its daemon does not");
  return text;
}
