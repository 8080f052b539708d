/**
 * Replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when somebody
 * sends it "stop", or at Ctrl-C.
 *
 *     node examples/worker.js &
 *     bccn req jobs/upper 'hello there'
 */

import { BccnError, connect } from "../src/node.js"; // in a program of your own: from "bccn"

const BEAT = 5000; // milliseconds

const stopping = new AbortController();
const stop = () => stopping.abort();
process.once("SIGINT", stop).once("SIGTERM", stop);

/** @param {string | undefined} address */
async function work(address) {
  const bus = await connect({
    ...(address ? { address } : {}),
    format: "full", // shows who asks
    wait: 10_000,
    onNotice: (notice) => console.error(`worker: ${notice}`),
    signal: stopping.signal,
  });
  try {
    let done = 0;
    await bus.heartbeat(BEAT, "ready");
    await bus.listen((message) => message.text === "stop" && stop());
    const jobs = await bus.serve("jobs/upper", async (request) => {
      const capitals = request.payload.map((byte) => (byte >= 0x61 && byte <= 0x7a ? byte - 0x20 : byte));
      await request.reply(capitals); // here, and not by returning it: the heartbeat counts what has been sent
      await bus.heartbeat(BEAT, `${++done} done`);
    });
    console.log(`${bus.name} is ready`);

    if (!stopping.signal.aborted) await new Promise((resolve) => stopping.signal.addEventListener("abort", resolve));
    await jobs.close();
    console.log(`${done} done`);
    await bus.barrier(); // the daemon has everything
  } finally {
    await bus.close();
  }
}

try {
  await work(process.argv[2]);
} catch (error) {
  if (error instanceof BccnError) {
    console.error(`worker: ${error.message}`);
    process.exitCode = 1;
  } else if (error !== stopping.signal.reason) throw error; // else it was stopped before it was connected
}
