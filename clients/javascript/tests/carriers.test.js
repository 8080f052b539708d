/** The ways to the door: Unix stream sockets, TLS, WebSockets; and what is not there. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import tls from "node:tls";
import { Worker } from "node:worker_threads";

import { connect as connectTo } from "../src/node.js";
import { FakeDoor, settled } from "./fake_door.js";
import { closedAfter } from "./opened.js";
import { serve, webServer } from "./servers.js";

const folder = mkdtempSync(join(tmpdir(), "bccn-"));
after(() => rmSync(folder, { recursive: true }));

/** @param {import("../bccn.js").Options} options */
const connect = async (options) => closedAfter(await connectTo({ timeout: 30_000, ...options }));

/** A certificate that signs itself. @param {string} name @param {string} host */
function certificate(name, host) {
  const [cert, key] = [join(folder, `${name}.pem`), join(folder, `${name}.key`)];
  execFileSync("openssl", [
    "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
    "-subj", `/CN=${host}`, "-addext", `subjectAltName=DNS:${host}`, "-keyout", key, "-out", cert,
  ], { stdio: "pipe" });
  return { cert, key };
}

/**
 * @param {import("node:net").Server | import("node:http").Server} server
 * @param {any} [where]
 * @returns {Promise<any>}
 */
async function listening(server, where = { host: "127.0.0.1", port: 0 }) {
  closedAfter(server).listen(where);
  await once(server, "listening");
  return server.address();
}

const SIZES = [1, 1000, 60_000];

/**
 * Messages of all sizes go both ways.
 * @param {import("../bccn.js").Options} options
 */
async function exchange(options) {
  const bus = await connect({ onNotice() {}, ...options });
  assert.equal(bus.name, "here/test/1");
  await bus.subscribe("a");
  for (const size of SIZES) await bus.publish("a", "x".repeat(size));
  for (const size of SIZES) assert.equal((await bus.receive({ timeout: 30_000 }))?.payload.length, size);
  await bus.barrier();
  await bus.close();
}

/** A door that echoes. */
const echoing = () =>
  new FakeDoor((packet, door) => {
    if (packet.startsWith("MSG ")) door.say(packet);
  });

test("a Unix stream socket", async () => {
  const door = echoing();
  const server = net.createServer((socket) => serve(door, socket));
  const path = join(folder, "mux.sock");
  await listening(server, { path });
  await exchange({ address: `unix:${path}` });
  process.env.BCCN_CONNECT = `unix:${path}`;
  await exchange({});
  server.close();
});

test("TLS, with certificates of both sides", async () => {
  const [door, of] = [echoing(), certificate("door", "relay01")];
  const program = certificate("program", "program");
  const server = tls.createServer(
    { cert: readFileSync(of.cert), key: readFileSync(of.key), ca: readFileSync(program.cert), requestCert: true },
    (socket) => serve(door, socket),
  );
  const address = `tls://127.0.0.1:${(await listening(server)).port}`;
  await exchange({ address, ca: of.cert, ...program, serverName: "relay01" });
  await exchange({ address, ca: readFileSync(of.cert), cert: readFileSync(program.cert), key: readFileSync(program.key), serverName: "relay01" });
  const own = join(folder, "own.pem"); // the key in the file of the certificate
  writeFileSync(own, readFileSync(program.cert, "utf8") + readFileSync(program.key, "utf8"));
  await exchange({ address, ca: of.cert, cert: own, serverName: "relay01" });
  const known = { ca: of.cert, serverName: "relay01" };
  /** @type {[import("../bccn.js").Options, string, RegExp][]} */
  const mistakes = [
    [{ ca: program.cert, serverName: "relay01" }, "unavailable", /self-signed/],
    [{ ca: of.cert, serverName: "relay02" }, "unavailable", /relay02/],
    [{ serverName: "relay01" }, "unavailable", /self-signed/],
    [known, "refused", /does not take our certificate/],
    [{ ...known, cert: program.cert, key: of.key }, "invalid", /door\.key is not the key of .*program\.pem/],
    [{ ...known, cert: program.cert }, "invalid", /program\.pem has no private key/],
    [{ ...known, cert: program.key }, "invalid", /program\.key has no certificate/],
    [{ ...known, cert: program.cert, key: Buffer.from("-----BEGIN ENCRYPTED PRIVATE KEY-----") }, "invalid", /the option key has a password/],
    [{ ...known, key: program.key }, "invalid", /a key needs its certificate/],
    [{ ca: join(folder, "missing.pem") }, "invalid", /ca: .*missing\.pem/],
    [{ ca: Buffer.from("nothing") }, "invalid", /the option ca has no certificate/],
  ];
  for (const [wrong, code, message] of mistakes) {
    await assert.rejects(connect({ address, ...wrong }), { code, message }, JSON.stringify(wrong));
  }
  server.close();
});

// Node 18 has none.
const skip = globalThis.WebSocket ? false : "needs Node 22, or 20 with --experimental-websocket";

test("a WebSocket, with a token that is in no address", { skip }, async () => {
  for (const size of [1000, 60_000]) {
    const [door, asked] = [echoing(), /** @type {string[]} */ ([])];
    const server = webServer(door, size, asked);
    const address = `ws://127.0.0.1:${(await listening(server)).port}/bus`;
    await exchange({ address, token: "secret" });
    assert.deepEqual(asked, ["bpmux, token.secret"]);
    server.close();
  }
});

test("a page finds the door that it came from", { skip }, async () => {
  const door = echoing();
  const server = webServer(door, 1000, []);
  const { port } = await listening(server);
  const page = new Worker(new URL("page.js", import.meta.url), { workerData: `http://127.0.0.1:${port}/index.html` });
  assert.deepEqual(await once(page, "message"), ["hello"]);
  await page.terminate();
  server.close();
});

test("a WebSocket that takes no more holds who publishes", async () => {
  const door = new FakeDoor();
  /** A WebSocket of another package, whose buffer is full until somebody says so. */
  class Slow extends EventTarget {
    static buffered = 0;
    /** @type {Slow | undefined} */
    static last;
    binaryType = "";
    readyState = 1;
    bufferedAmount = 0;
    /** @type {any} */
    carrier;

    constructor() {
      super();
      Slow.last = this;
      const taker = {
        data: (/** @type {Uint8Array} */ data) => void this.dispatchEvent(new MessageEvent("message", { data: data.slice().buffer })),
        drain() {},
        end() {},
      };
      const opened = door.platform.open("", {}, taker, new AbortController().signal);
      void opened.then((carrier) => {
        this.carrier = carrier;
        this.dispatchEvent(new Event("open"));
      });
    }

    /** @param {Uint8Array} data */
    send(data) {
      this.carrier.write(data);
      this.bufferedAmount = Slow.buffered;
    }

    close() {}
  }
  const bus = await connect({ address: "ws://127.0.0.1/bus", WebSocket: /** @type {any} */ (Slow) });
  Slow.buffered = 1 << 20;
  await bus.publish("a", "goes");
  while (!door.seen.includes("MSG a\0goes")) await settled();
  await assert.rejects(bus.publish("a", "waits, and is never sent", { timeout: 1 }), { code: "timeout" });
  Slow.buffered = 0;
  if (Slow.last) Slow.last.bufferedAmount = 0;
  await bus.publish("a", "goes later");
  await bus.barrier();
  assert.deepEqual(door.seen.filter((packet) => packet.startsWith("MSG")), ["MSG a\0goes", "MSG a\0goes later"]);
  await bus.close();
});

test("where there is no WebSocket, it says what to do", async () => {
  const found = Object.getOwnPropertyDescriptor(globalThis, "WebSocket");
  Reflect.deleteProperty(globalThis, "WebSocket");
  try {
    await assert.rejects(connect({ address: "ws://127.0.0.1:1/bus", wait: 60_000 }), { code: "invalid", message: /^[^\n]*Node 22.*option WebSocket[^\n]*$/ });
  } finally {
    if (found) Object.defineProperty(globalThis, "WebSocket", found);
  }
});

test("where nobody is, it is unavailable", async () => {
  const server = net.createServer();
  const { port } = await listening(server);
  server.close();
  await once(server, "close");
  const web = skip ? [] : [`ws://127.0.0.1:${port}/bus`];
  for (const address of [`unix:${folder}/none.sock`, "unix:@bccn-nobody-is-here", `tls://127.0.0.1:${port}`, ...web]) {
    await assert.rejects(connect({ address }), { code: "unavailable" }, address);
  }
  for (const address of ["/run/bccnd/bus.sock", "unix:", "tls://127.0.0.1", "tls://127.0.0.1:65536", "http://127.0.0.1", "ws://[", `unix:/${"x".repeat(107)}`]) {
    await assert.rejects(connect({ address }), { code: "invalid" }, address);
  }
  const noOptions = /** @type {any} */ (`unix:${folder}/none.sock`);
  await assert.rejects(async () => connectTo(noOptions), { code: "invalid", message: /connect takes options/ });
});

test("a server that never answers is given up in time", async () => {
  const server = net.createServer();
  const path = join(folder, "silent.sock");
  await listening(server, { path });
  await assert.rejects(connect({ address: `unix:${path}`, timeout: 50 }), { code: "unavailable" });
  server.close();
});
