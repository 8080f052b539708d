/** What a page does, in a thread that has what a browser has and no more of it. */

import { parentPort, workerData } from "node:worker_threads";

/** @type {any} */ (globalThis).location = { href: workerData };
const { connect } = await import("../src/browser.js");
const bus = await connect({ token: "secret", timeout: 30_000 });
await bus.subscribe("a");
await bus.publish("a", "hello");
const message = await bus.receive({ timeout: 30_000 });
await bus.close();
parentPort?.postMessage(message?.text);
