/** What was recorded of the bus, and then, if it has no end, the live bus (clients/BPMUX.md, "Replays"). */

import { InvalidError, UnavailableError } from "./errors.js";
import { Fifo } from "./fifo.js";
import { Notice } from "./notices.js";
import { buildSub, isNumber, Message, parse } from "./protocol.js";
import { Pending, wait } from "./waiting.js";

/** @typedef {Date | string | number | bigint} Time */

// Bytes that a message costs besides its packet, about.
const MESSAGE_COST = 256;
const SECOND_NS = 10n ** 9n;

/**
 * Messages as they come. One that the program has not asked for yet gets no credit anew.
 * @param {import("./session.js").Session} session
 * @param {string} pattern
 * @param {{from: Time, to?: Time}} span
 * @param {{timeout: number, window: number, signal?: AbortSignal}} how  timeout: to get a connection
 * @returns {AsyncGenerator<Message, void, undefined>}
 */
export async function* replay(session, pattern, { from, to }, { timeout, window, signal }) {
  buildSub("SUB", pattern);
  const question = `REPLAY ${timeOf(from)} ${to === undefined ? "" : timeOf(to)} ${pattern}`;
  await session.available({ timeout, signal });
  const { link } = session;
  if (!link) throw new UnavailableError("there is no connection to the door");
  /** @type {Fifo<Message>} */
  const messages = new Fifo();
  const coming = new Pending();
  let [waiting, lost] = [0, 0];
  /** @param {Message} message */
  const costOf = (message) => (message.datagram?.length ?? 0) + MESSAGE_COST;
  const stream = link.openStream(question, window, {
    message(packet) {
      const said = parse(packet);
      if (said instanceof Message) {
        [said.lost, lost] = [lost, 0];
        messages.push(said);
        hold(costOf(said));
      } else if (said.key === "dropped" && isNumber(said.value)) {
        lost += Number(said.value);
        session.notify(new Notice("lost", `${said.value} lost: messages came faster than they were read`, Number(said.value)));
      } else if (said.key === "unrecorded") {
        session.notify(new Notice("unrecorded", unrecorded(said.value)));
      }
      coming.wake();
    },
    end: (error) => coming.finish(error ?? undefined),
  });
  /** @param {number} bytes */
  function hold(bytes) {
    waiting += bytes;
    if (!coming.done && link?.isOpen) link.hold(stream, Math.min(waiting, window));
  }
  try {
    for (;;) {
      const message = messages.shift();
      if (message) {
        hold(-costOf(message));
        yield message;
      } else if (coming.done) {
        break;
      } else {
        await wait(coming, Infinity, signal);
      }
    }
    if (coming.error) throw session.over ?? coming.error;
  } finally {
    link.leave(stream);
  }
}

/**
 * As the door takes it. @param {Time} time  text as it is, milliseconds as those of Date.now, nanoseconds as a bigint
 */
function timeOf(time) {
  if (typeof time === "bigint" && time >= 0n) return `${time / SECOND_NS}.${`${time % SECOND_NS}`.padStart(9, "0")}`;
  if (typeof time === "number" && time >= 0 && Number.isFinite(time)) return (time / 1000).toFixed(3);
  if (time instanceof Date && !Number.isNaN(time.getTime())) return time.toISOString();
  if (typeof time === "string" && /^[!-~]+$/.test(time)) return time;
  throw new InvalidError(`${String(time)}: no time; it is a Date, milliseconds since 1970, or text such as "-10m"`);
}

/** @param {string} said  <from> <to> <why> */
function unrecorded(said) {
  const [since, until, ...why] = said.split(" ");
  const [begin, end] = [since, until].map((each) => {
    const date = new Date(isNumber(each) ? Number(BigInt(each) / 1_000_000n) : Number.NaN);
    return Number.isNaN(date.getTime()) ? each : date.toISOString();
  });
  return `${begin} to ${end}: ${why.join(" ")}`;
}
