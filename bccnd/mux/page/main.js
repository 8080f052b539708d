/**
 * The page: a client of the bus like any other, that shows what it sees.
 *
 * - The token comes behind the # of the address, which no browser sends, or is asked for. It is kept for this tab alone.
 * - Messages are read in turns (reading.js), and drawn twice a second, whatever comes. Nothing is drawn, nor asked, while
 *   nobody can see it.
 * - The tail has a connection of its own (following.js).
 */

import { connect } from "./client/browser.js";
import { Answering } from "./answering.js";
import { askNow, askOn } from "./answers.js";
import { at, put } from "./elements.js";
import { rejectionOf } from "./faults.js";
import { Following } from "./following.js";
import { Reading, readInTurns } from "./reading.js";
import { rate } from "./shown.js";
import { Tail } from "./tail.js";
import { TailView } from "./tail_view.js";
import { Tree } from "./tree.js";
import { TreeView } from "./tree_view.js";

const KEPT = "bccnd token";
const DRAW_EVERY = 500;
// What may wait for the page, in the daemon and on the way: old messages are of no use here.
const QUEUE = { packets: 1000, policy: /** @type {const} */ ("drop-oldest") };
const WINDOW = 64 * 1024;

/** @param {string} token */
function connected(token) {
  return connect({ token, format: "full", pack: true, queue: QUEUE, window: WINDOW });
}

/** @param {string} token */
async function open(token) {
  const bus = await connected(token);
  let none = "No message yet.";
  let ofTail;
  try {
    await bus.subscribe(">").catch((error) => {
      if (error.code !== "refused") throw error;
      none = "Your token has no right to all channels. Give the tail a pattern that it has a right to.";
    });
    ofTail = await connected(token);
  } catch (error) {
    await bus.close();
    throw error;
  }
  const answering = new Answering();
  const state = () => {
    const isLate = answering.isLate(performance.now() / 1000);
    const last = answering.last ? ` last answered at ${clock(answering.last)}` : " has not answered yet";
    say(`connected as ${bus.name}${isLate ? `, but the daemon${last}` : ""}`, isLate);
    document.title = `${bus.name.split("/", 1)[0]} - bccnd`;
  };
  bus.on("reconnected", state);
  for (const kind of /** @type {const} */ (["closing", "disconnected", "revoked"])) {
    bus.on(kind, (notice) => {
      answering.forget();
      say(`${notice}`, true);
    });
  }
  let wasLate = false;
  setInterval(() => {
    const isLate = answering.isLate(performance.now() / 1000);
    if (isLate !== wasLate && bus.isConnected) state();
    wasLate = isLate;
  }, DRAW_EVERY);
  for (const kind of /** @type {const} */ (["lost", "rejected", "unclaimed"])) {
    bus.on(kind, () => {}); // the share says so, and whoever called
  }
  ofTail.on("notice", () => {}); // likewise, and the other connection
  sessionStorage.setItem(KEPT, token);
  const isAsked = at("door").contains(document.activeElement);
  at("door").hidden = true;
  at("board").hidden = at("views").hidden = false;
  if (isAsked) at("top").focus(); // the next tab goes to the views
  state();
  follow(bus, ofTail, none);
  askOn(bus, ofTail, answering);
  offerToPublish(bus);
  at("look").addEventListener("click", () => askNow(bus));
}

/** A box to publish, where the settings of the door want one. @param {any} bus */
function offerToPublish(bus) {
  void showBox();
  bus.on("reconnected", () => void showBox()); // perhaps to a door with other settings
  at("publishing").addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const channel = at("publish-channel").value;
    try {
      await bus.publish(channel, at("publish-payload").value);
      await bus.barrier();
      put(at("publish-note"), `Published on ${channel}.`);
    } catch (error) {
      put(at("publish-note"), rejectionOf(channel, error));
    }
  });
}

async function showBox() {
  const settings = await fetch("/settings.json").then((answer) => answer.json(), () => undefined);
  if (settings) at("publish").hidden = at("publish-link").hidden = !settings.publish;
}

/** @param {Date} when */
const clock = (when) => when.toTimeString().slice(0, 8);

/**
 * Of the connection, above everything.
 * @param {string} text
 * @param {boolean} isWarning
 */
function say(text, isWarning) {
  put(at("state"), text);
  at("state").classList.toggle("warning", isWarning);
}

/**
 * @param {any} bus
 * @param {any} ofTail
 * @param {string} none  what is said where there are no channels
 */
function follow(bus, ofTail, none) {
  const [tree, tail, reading] = [new Tree(), new Tail(), new Reading()];
  const treeView = new TreeView(tree, at("channels"), at("channels-note"), at("tree-region"), none);
  const following = new Following(ofTail, (message) => tail.note(message, new Date()));
  const tailView = new TailView(tail, (pattern) => following.follow(pattern), {
    list: at("tail"), note: at("tail-note"), fault: at("pattern-fault"), pause: at("pause"),
    pattern: at("pattern"), contains: at("contains"), form: at("form"),
  });
  void tailView.change();
  setInterval(() => {
    if (document.hidden) return;
    const now = performance.now() / 1000;
    const { seen, all, samples } = reading.share(now);
    const share = samples ? `about ${rate(all)} messages/s, of which it reads ${rate(seen)}` : `${rate(all)} messages/s`;
    put(at("rate"), bus.isConnected ? share : "what is below is from before");
    // Screen readers say it whenever it changes, so it has no figures.
    put(at("sampling"), samples && bus.isConnected ? "sampling: rates are estimates" : "");
    treeView.draw(now, samples ? all / seen : 1);
    tailView.draw();
  }, DRAW_EVERY);
  const take = (/** @type {any} */ message) => {
    const now = performance.now() / 1000;
    if (!message.retained) reading.note(message, now);
    tree.note(message, now);
  };
  void readInTurns(bus, take).catch((error) => say(error.message, true));
}

/** @param {string} why */
function askForToken(why) {
  at("board").hidden = at("views").hidden = true;
  at("door").hidden = false;
  say("not connected", false);
  put(at("refusal"), why);
  at("token").focus();
}

/** @param {string} token */
function enter(token) {
  say("connecting", false);
  open(token).catch(async (error) => askForToken(await whyNot(error)));
}

/** A browser does not say why a WebSocket is refused: that the door is there says it. @param {any} error */
async function whyNot(error) {
  if (error.code === "invalid") return "That is no token: it has a character that no token has.";
  if (!error.message?.startsWith("no WebSocket")) return error.message ?? `${error}`;
  const isThere = await fetch("/settings.json").then(({ ok }) => ok, () => false);
  return isThere ? "The door does not know this token." : "The door does not answer: see whether bccnd-mux still runs.";
}

at("door").addEventListener("submit", (/** @type {SubmitEvent} */ event) => {
  event.preventDefault();
  enter(at("token").value);
});

/** The token behind the #, which is not left there for whoever looks at the screen. */
function given() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found) history.replaceState(null, "", location.pathname);
  return found;
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
