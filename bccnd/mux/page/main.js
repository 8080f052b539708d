/**
 * The page: a client of the bus like any other, that shows what it sees.
 *
 * - The token comes behind the # of the address, which no browser sends, or is asked for. It is kept for this tab alone.
 * - Messages are read in turns (reading.js), and drawn twice a second, whatever comes.
 */

import { connect } from "./client/browser.js";
import { CLIENT_HEADS, clientRows, SOURCE_HEADS, sourceRows } from "./figures.js";
import { LINK_HEADS, linkRows, PARTS_LIMIT } from "./links.js";
import { Reading, readInTurns } from "./reading.js";
import { rate } from "./shown.js";
import { drawTable } from "./table_view.js";
import { Tail } from "./tail.js";
import { TailView } from "./tail_view.js";
import { Tree } from "./tree.js";
import { put, TreeView } from "./tree_view.js";

const KEPT = "bccnd token";
const DRAW_EVERY = 500;
// Milliseconds between two questions, and how often the time of their answers at least: thousands of rows take a while.
const ASK_EVERY = 2000;
const ASK_PART = 10;
// Where uplinks answer, and milliseconds in which they do.
const LINKS = "bccnd/links";
const LINKS_WAIT = 1000;
// What may wait for the page, in the daemon and on the way: old messages are of no use here.
const QUEUE = { packets: 1000, policy: /** @type {const} */ ("drop-oldest") };
const WINDOW = 64 * 1024;

const at = (/** @type {string} */ id) => /** @type {any} */ (document.getElementById(id));

/** @param {string} token */
async function open(token) {
  const bus = await connect({ token, format: "full", pack: true, queue: QUEUE, window: WINDOW });
  const state = () => say(`connected as ${bus.name}`, false);
  bus.on("reconnected", state);
  for (const kind of /** @type {const} */ (["closing", "disconnected", "revoked"])) {
    bus.on(kind, (notice) => say(`${notice}`, true));
  }
  for (const kind of /** @type {const} */ (["lost", "rejected", "unclaimed"])) {
    bus.on(kind, () => {}); // the share says so, and whoever called
  }
  try {
    await bus.subscribe(">");
  } catch (error) {
    await bus.close();
    throw error;
  }
  sessionStorage.setItem(KEPT, token);
  at("door").hidden = true;
  at("board").hidden = false;
  state();
  follow(bus);
  void ask(bus);
  void offerToPublish(bus);
  at("look").addEventListener("click", () => askUplinks(bus));
}

/** A request to all of the segment, so it is made when somebody wants to know. @param {any} bus */
async function askUplinks(bus) {
  at("look").disabled = true;
  put(at("links-note"), "asking");
  const replies = [];
  try {
    const asked = bus.requestMany(LINKS, "", { count: PARTS_LIMIT, timeout: LINKS_WAIT, waitAnyway: true });
    for await (const reply of asked) replies.push(reply.payload);
  } catch (error) {
    put(at("links-note"), messageOf(error));
  }
  drawTable(at("links"), at("links-note"), LINK_HEADS, linkRows(replies));
  at("look").disabled = false;
}

/** A box to publish, where the settings of the door want one. @param {any} bus */
async function offerToPublish(bus) {
  const settings = await fetch("/settings.json").then((answer) => answer.json());
  at("publish").hidden = !settings.publish;
  at("publishing").addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const channel = at("publish-channel").value;
    try {
      await bus.publish(channel, at("publish-payload").value);
      await bus.barrier();
      put(at("publish-note"), `Published on ${channel}.`);
    } catch (error) {
      put(at("publish-note"), messageOf(error));
    }
  });
}

/**
 * Of the connection, above everything.
 * @param {string} text
 * @param {boolean} isWarning
 */
function say(text, isWarning) {
  put(at("state"), text);
  at("state").classList.toggle("warning", isWarning);
}

/** @param {any} bus */
function follow(bus) {
  const [tree, tail, reading] = [new Tree(), new Tail(), new Reading()];
  const treeView = new TreeView(tree, at("channels"), at("channels-note"));
  const parts = { list: at("tail"), note: at("tail-note"), pause: at("pause") };
  const tailView = new TailView(tail, { ...parts, pattern: at("pattern"), contains: at("contains"), form: at("form") });
  setInterval(() => {
    if (document.hidden) return;
    const now = performance.now() / 1000;
    const { seen, all, samples } = reading.share(now);
    const share = samples ? `sampling: about ${rate(seen)} of ${rate(all)} messages/s` : `${rate(all)} messages/s`;
    put(at("share"), bus.isConnected ? share : "what is below is from before");
    treeView.draw(now, samples ? all / seen : 1);
    tailView.draw();
  }, DRAW_EVERY);
  const take = (/** @type {any} */ message) => {
    const now = performance.now() / 1000;
    if (!message.retained) reading.note(message, now);
    tree.note(message, now);
    tail.note(message, new Date());
  };
  void readInTurns(bus, take).catch((error) => say(error.message, true));
}

/** @param {any} bus */
async function ask(bus) {
  for (;;) {
    const began = performance.now();
    await Promise.all([
      show(() => bus.clients(), "clients", CLIENT_HEADS, clientRows),
      show(() => bus.sources(), "sources", SOURCE_HEADS, sourceRows),
    ]);
    const pause = Math.max(ASK_EVERY, ASK_PART * (performance.now() - began));
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

/**
 * @param {() => Promise<any[]>} asked
 * @param {string} id
 * @param {string[]} heads
 * @param {(rows: any[]) => import("./figures.js").Cell[][]} rowsOf
 */
async function show(asked, id, heads, rowsOf) {
  try {
    drawTable(at(id), at(`${id}-note`), heads, rowsOf(await asked()));
  } catch (error) {
    put(at(`${id}-note`), messageOf(error));
  }
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : `${error}`;
}

/** @param {string} why */
function askForToken(why) {
  at("board").hidden = true;
  at("door").hidden = false;
  say("not connected", false);
  put(at("refusal"), why);
  at("token").focus();
}

/** @param {string} token */
function enter(token) {
  say("connecting", false);
  open(token).catch((error) => askForToken(messageOf(error)));
}

at("door").addEventListener("submit", (/** @type {SubmitEvent} */ event) => {
  event.preventDefault();
  enter(at("token").value);
});

/** The token behind the #, which is not left there for whoever looks at the screen. */
function given() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash) history.replaceState(null, "", location.pathname);
  return token;
}

// Another address that differs behind the # alone loads no page.
addEventListener("hashchange", () => {
  const other = given();
  if (!other) return;
  sessionStorage.setItem(KEPT, other);
  location.reload();
});
const token = given() ?? sessionStorage.getItem(KEPT);
if (token) enter(token);
else askForToken("");
