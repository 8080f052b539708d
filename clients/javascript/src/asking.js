/** To ask other programs, and to reply to them (clients/PROTOCOL.md, "Request and reply"). */

import { BccnError, InvalidError, NobodyListensError, RejectedError, TimedOutError } from "./errors.js";
import { ASK_AFTER, ASK_EVERY, QUESTIONS } from "./exchange.js";
import { report } from "./notices.js";
import { buildMessage, encoded } from "./protocol.js";
import { now, wait } from "./waiting.js";

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").Handler} Handler */
/** @typedef {import("./client.js").Payload} Payload */
/** @typedef {import("./exchange.js").Exchange} Exchange */
/** @typedef {import("./protocol.js").Message} Message */
/** @typedef {import("./session.js").Session} Session */
/** @typedef {import("./subscription.js").Patience} Patience */

/**
 * Publishes a request, and gives the replies as they come, until there are enough or the time is over.
 * @param {Session} session
 * @param {string} channel
 * @param {Payload} payload
 * @param {Patience & {count?: number, waitAnyway?: boolean}} how
 * @returns {AsyncGenerator<Message, void, undefined>}
 */
export async function* ask(session, channel, payload, how) {
  const { timeout = 0, signal, count = Infinity, waitAnyway = false } = how;
  if (!(count >= 1)) throw new InvalidError(`${count} replies: must be 1 or more`);
  const { exchanges, inbox } = session;
  const deadline = now() + timeout;
  const within = () => ({ timeout: deadline - now(), signal });
  await session.available(within());
  const exchange = exchanges.begin(channel);
  const { replies } = exchange;
  try {
    try {
      exchange.isSettled = (await publishRequest(session, exchange, payload, within)) || waitAnyway || exchange.isSettled;
    } catch (error) {
      if (error instanceof TimedOutError) return; // the time is over, which ends the replies
      throw error;
    }
    let due = now() + ASK_AFTER;
    for (let came = 0, questions = QUESTIONS; came < count; ) {
      const reply = inbox.take(replies);
      if (reply) {
        came++;
        yield reply;
        continue;
      }
      if (session.over) throw session.over;
      if (now() >= deadline) return;
      if (!exchange.isSettled && now() >= due) {
        if (!questions--) throw new NobodyListensError(`nobody listens to ${channel}`);
        due = now() + ASK_EVERY;
        try {
          await askOthers(session, exchange, within());
        } catch (error) {
          if (!(error instanceof TimedOutError)) throw error;
        }
      }
      const until = exchange.isSettled ? deadline : Math.min(deadline, due);
      if (!replies.messages.length) await session.pressing(() => wait(replies, until, signal));
    }
  } finally {
    exchanges.end(exchange);
    inbox.discard(replies);
  }
}

/**
 * Publishes a request once. What was published before is confirmed first, so that any rejection is about the request.
 * Returns whether anybody of this host listens.
 * @param {Session} session
 * @param {Exchange} exchange
 * @param {Payload} payload
 * @param {() => Patience} within  what is left of the time
 */
async function publishRequest(session, exchange, payload, within) {
  const question = encoded(payload);
  const token = encoded(`${exchange.token}\n`);
  const whole = new Uint8Array(token.length + question.length);
  whole.set(token);
  whole.set(question, token.length);
  const packet = buildMessage(exchange.channel, whole);
  if (!session.wishes.has("listen")) {
    await session.ask("listen", undefined, { ...within(), granted: () => void session.wishes.set("listen", "") });
  } else if (!session.ledger.isConfirmed) {
    await session.ask("ping", undefined, within());
  }
  exchange.isOnItsWay = true;
  await session.transmit([{ packet, messages: 1 }], within());
  let listeners = "";
  try {
    listeners = await session.ask("listeners", exchange.channel, within());
  } catch (error) {
    // A daemon that does not know the question is older, and it is not known whether anybody listens.
    if (!exchange.rejection && !(error instanceof RejectedError && error.code === "unknown-key")) throw error;
  }
  exchange.isOnItsWay = false;
  if (exchange.rejection) throw exchange.rejection;
  return listeners !== "0";
}

/**
 * Has the daemon ask those of the other hosts. It answers `<n>`, `<n> asked` or `<n> busy`.
 * @param {Session} session
 * @param {Exchange} exchange
 * @param {Patience} patience
 */
async function askOthers(session, exchange, patience) {
  const answer = await session.ask("listeners", `${exchange.channel} ${exchange.token}?`, patience);
  const [listeners, outcome] = answer.split(" ");
  exchange.isSettled ||= listeners !== "0" || outcome === "busy";
  if (!exchange.isSettled && outcome !== "asked") {
    throw new NobodyListensError(`nobody on this host listens to ${exchange.channel}, a local channel`);
  }
}

/**
 * A callback that replies to requests with what the handler returns. The next message waits while as many requests as
 * may be are carried out.
 * @param {Client} client
 * @param {Handler} handler
 * @param {number} concurrency
 * @param {(error: Error) => void} failed  a reply could not be sent
 */
export function serving(client, handler, concurrency, failed) {
  /** @type {Set<Promise<void>>} */
  const working = new Set();
  return (/** @type {Message} */ message) => {
    const request = message.retained ? undefined : client.asRequest(message); // a last value was served when it was new
    if (!request) return undefined;
    const work = report(async () => {
      const reply = await handler(request);
      if (reply === undefined || reply === null) return;
      await request.reply(reply).catch((error) => {
        if (!(error instanceof BccnError) || error instanceof InvalidError) throw error;
        failed(error);
      });
    }).finally(() => working.delete(work));
    working.add(work);
    return working.size < concurrency ? undefined : Promise.race(working);
  };
}
