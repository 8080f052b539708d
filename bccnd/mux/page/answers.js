/** What the daemon, the door, uplinks and gateways answer: clients, hosts, findings, links. */

import { at, put } from "./elements.js";
import { FindingsView } from "./findings_view.js";
import { CLIENT_HEADS, clientRows } from "./figures.js";
import { HOST_HEADS, hostRows } from "./hosts.js";
import { gatewayRows, LINK_HEADS, linkRows, Taken } from "./links.js";
import { drawTable, plain } from "./table_view.js";

// Milliseconds between two questions, and how often the time of their answers at least: thousands of rows take a while.
const ASK_EVERY = 2000;
const EXAMINE_EVERY = 10_000;
const ASK_PART = 10;
// Where uplinks of the segment answer, and gateways of this host; and milliseconds in which they do.
const LINKS = "bccnd/links";
const FACTS = "local/bccnd/facts";
const LINKS_WAIT = 1000;
const NO_HOSTS = "No other host is heard.";
const NO_RIGHT = "Your token does not have the right to see this.";
const NO_LINKS = "No uplink or gateway has answered: none runs on this segment, or none hears this host.";

/**
 * Asks again and again.
 * @param {any} bus
 * @param {any} ofTail  the other connection of the page
 * @param {import("./answering.js").Answering} answering  is told of what was asked and answered
 */
export function askOn(bus, ofTail, answering) {
  const noted = (/** @type {Promise<any>} */ question) => {
    answering.asked(performance.now() / 1000);
    const isAnswer = (/** @type {any} */ error) => !error || error.code === "refused";
    const note = (/** @type {any} */ error) => void (isAnswer(error) && answering.answered(new Date()));
    question.then(() => note(undefined), note);
    return question;
  };
  const parts = { list: at("findings"), note: at("doctor-note"), sound: at("sound"), soundList: at("sound-findings") };
  const findingsView = new FindingsView(parts);
  const hosts = hostsView();
  const own = () => [bus.name, ofTail.name];
  const clients = (/** @type {any[]} */ rows) =>
    drawTable(at("clients"), at("clients-note"), CLIENT_HEADS, plain(clientRows(rows, own())), "None.");
  void keepAsking(ASK_EVERY, async () => {
    const answered = await Promise.all([
      tell("clients-note", async () => clients(await noted(bus.clients()))),
      tell("hosts-note", async () => hosts(await noted(bus.sources()))),
    ]);
    return answered.every(Boolean);
  });
  void keepAsking(EXAMINE_EVERY, () =>
    tell("doctor-note", async () => findingsView.draw((await bus.doctor({ without: own() })).findings)),
  );
}

/** Draws sources by host, and again when somebody opens a host. @returns {(sources: any[]) => void} */
function hostsView() {
  const open = new Set();
  /** @type {any[]} */
  let last = [];
  const draw = () => drawTable(at("hosts"), at("hosts-note"), HOST_HEADS, hostRows(last, open), NO_HOSTS);
  at("hosts").addEventListener("click", (/** @type {any} */ { target }) => {
    const key = target.closest(".fold")?.closest("tr").dataset.key;
    if (key === undefined) return;
    if (!open.delete(key)) open.add(key);
    draw();
  });
  return (sources) => {
    last = sources;
    draw();
  };
}

/** A request to all of the segment, so it is made when somebody wants to know. @param {any} bus */
export async function askNow(bus) {
  const look = at("look");
  if (look.getAttribute("aria-disabled") === "true") return;
  look.setAttribute("aria-disabled", "true"); // one that is disabled loses the focus
  put(at("links-note"), "Asking.");
  await tell("links-note", async () => {
    const [ofLinks, facts] = await Promise.all([replies(bus, LINKS), replies(bus, FACTS).catch(none)]);
    const rows = plain([...linkRows(ofLinks.map(({ payload }) => payload)), ...gatewayRows(facts)]);
    drawTable(at("links"), at("links-note"), LINK_HEADS, rows, NO_LINKS);
  });
  look.setAttribute("aria-disabled", "false");
}

/** @param {any} bus  @param {string} channel  @returns {Promise<{src?: string, payload: Uint8Array}[]>} */
async function replies(bus, channel) {
  const taken = new Taken();
  const end = performance.now() + LINKS_WAIT;
  for await (const reply of bus.requestMany(channel, "", { timeout: LINKS_WAIT, waitAnyway: true })) {
    taken.take(reply);
    if (performance.now() >= end) break; // replies in a flood do not end by themselves
  }
  return taken.replies;
}

/** Whose token may not ask has no gateways, and the uplinks all the same. @returns {any[]} */
function none() {
  return [];
}

/**
 * @param {number} every  milliseconds
 * @param {() => Promise<boolean>} ask  returns whether there was an answer: what is given up was no work
 */
async function keepAsking(every, ask) {
  for (;;) {
    const began = performance.now();
    const answered = document.hidden || (await ask());
    const pause = answered ? Math.max(every, ASK_PART * (performance.now() - began)) : every;
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/**
 * Says what fails where its answer would be. Returns whether it did not.
 * @param {string} note
 * @param {() => Promise<void>} work
 */
async function tell(note, work) {
  try {
    await work();
    return true;
  } catch (/** @type {any} */ error) {
    put(at(note), error.code === "refused" ? NO_RIGHT : error.message ?? `${error}`);
    return false;
  }
}
