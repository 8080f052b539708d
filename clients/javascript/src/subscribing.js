/** To subscribe and to end that: what is said to the daemon, and what is left when it fails. */

import { Entry } from "./entry.js";
import { buildControl, buildSub } from "./protocol.js";

/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").Subscription} Subscription */
/** @typedef {import("./subscription.js").Patience} Patience */

const PING = buildControl("ping");
/** The pattern of who listens. No SUB has it: the daemon refuses it. */
export const ALL = "!";

/**
 * Returns when the subscription is in force. If it throws, nothing is left of it: its SUB, if it has left, is withdrawn,
 * and what has come for it alone is dropped (clients/PROTOCOL.md, "A subscribe that fails").
 * @param {Session} session
 * @param {Subscription} subscription
 * @param {Patience} [patience]
 */
export async function subscribe(session, subscription, patience) {
  const { inbox } = session;
  const { pattern } = subscription;
  const entry = new Entry([buildSub("SUB", pattern), PING], { key: "ping" });
  const since = inbox.stream.came;
  entry.isSub = true;
  entry.granted = () => void (subscription.isPending = false);
  inbox.add(subscription);
  try {
    await session.deliver(entry, patience);
  } catch (error) {
    subscription.end();
    inbox.remove(subscription);
    const isAsked = entry.sent > 0 && session.isConnected && !entry.error;
    if (!subscription.isPending || isAsked) withdraw(session, subscription);
    inbox.sift(inbox.stream, (message, number) => {
      const cameForIt = number > since && !message.isRejected && inbox.matches(pattern, message.channel);
      return !cameForIt || !inbox.isStray(message.channel);
    });
    throw error;
  }
  return subscription;
}

/**
 * @param {Session} session
 * @param {Subscription} subscription
 * @param {Patience} [patience]
 */
export async function unsubscribe(session, subscription, patience) {
  session.inbox.remove(subscription);
  if (subscription.pattern === ALL || session.over) return; // the daemon delivers on, for replies
  await session.settle(withdraw(session, subscription), patience);
}

/**
 * Has an UNSUB sent, without waiting for it. Until it is answered, what comes for it alone reaches nobody.
 * @param {Session} session
 * @param {Subscription} subscription
 */
function withdraw(session, subscription) {
  const { withdrawn } = session.inbox;
  const entry = new Entry([buildSub("UNSUB", subscription.pattern), PING], { key: "ping" });
  withdrawn.add(subscription);
  entry.wakers.add(() => void withdrawn.delete(subscription));
  session.post(entry);
  return entry;
}

/**
 * Has what is for all and for this program delivered; in place of whoever has got it until now.
 * @param {Session} session
 * @param {Subscription} subscription  to ALL
 * @param {Patience} [patience]
 */
export async function listen(session, subscription, patience) {
  const { inbox } = session;
  const granted = () => {
    const before = inbox.listener;
    inbox.listener = subscription;
    inbox.reroute();
    session.wishes.set("listen", "");
    before?.end();
    if (before) inbox.discard(before.stream);
  };
  try {
    await session.ask("listen", undefined, { ...patience, granted });
  } catch (error) {
    subscription.end();
    throw error;
  }
  return subscription;
}
