/**
 * The client of the bccnd bus: LISTEN/NOTIFY between the programs of a host and of its network segment.
 * Times are in milliseconds. What every client does is in clients/PROTOCOL.md, "The functions of a client".
 */

/** Text is sent as UTF-8. */
export type Payload = Uint8Array | string;
export type Format = "plain" | "full";
export type Separator = "/" | ".";
export type Tap = "off" | "on" | "interface";
export type Policy = "drop-oldest" | "drop-newest" | "block" | "disconnect";
/** Later versions may have more kinds. */
export type NoticeKind =
  | "lost" | "rejected" | "revoked" | "closing" | "disconnected" | "reconnected" | "unclaimed" | "unrecorded";

/** What may wait for this client in the daemon, and what happens then. What is left out is as the settings have it. */
export interface Queue {
  packets?: number;
  bytes?: number;
  policy?: Policy;
}

/** A Date, milliseconds since 1970, nanoseconds since then (`timeNs`), or text: ISO 8601, seconds since 1970, `-10m`. */
export type Time = Date | number | bigint | string;

/** How long a call waits, and what ends it early: it then fails with the reason of the signal. */
export interface Patience {
  timeout?: number;
  signal?: AbortSignal;
}

export interface Options {
  /** `unix:PATH`, `tls://HOST:PORT`, `ws://HOST:PORT/bus` or `wss://...`; else `$BCCN_CONNECT`, or the usual place. */
  address?: string;
  /** Own src; else the daemon gives `<host>/<program>/<pid>`. */
  name?: string;
  /** `full`: messages also say who sent them, and when. `plain` is the default. */
  format?: Format;
  /** Several messages share a packet, both ways: bursts are many times faster. */
  pack?: boolean;
  /** false: own messages that match are not received. */
  echo?: boolean;
  separator?: Separator;
  queue?: Queue;
  /** Also shows every datagram of the segment, with its verdict. Needs the right to tap. */
  tap?: Tap;
  /** false: once the connection has ended, calls fail with `unavailable`. */
  reconnect?: boolean;
  /** How long a call waits for the daemon: 5000, if nothing is said. */
  timeout?: number;
  /** How long `connect` keeps trying. */
  wait?: number;
  /** Gets the notices about the connection. Without it, and without `on`, they are warnings of the console. */
  onNotice?: (notice: Notice) => unknown;
  /** Ends `connect`, and not what follows. */
  signal?: AbortSignal;
  /** Bytes that the door may send before the program has received them: 256 KiB. */
  window?: number;
  /** Of TLS: the names of PEM files, or what is in them. */
  ca?: string | Uint8Array;
  cert?: string | Uint8Array;
  key?: string | Uint8Array;
  /** The name in the certificate of the door, where it is not that of the address. */
  serverName?: string;
  /** Of a WebSocket: what proves who this program is. */
  token?: string;
  /** Where there is none: the class of a package. */
  WebSocket?: typeof WebSocket;
}

/** Connects to the bus. */
export function connect(options?: Options): Promise<Client>;

export interface Client extends AsyncIterable<Message>, AsyncDisposable {
  /** Own src, as others see it; without a connection, the last one. */
  readonly name: string;
  readonly isConnected: boolean;
  /** How many messages the daemon has dropped in all, because this program read too slowly. */
  readonly lost: number;
  setName(name: string, patience?: Patience): Promise<void>;
  close(): Promise<void>;
  on(kind: NoticeKind | "notice", listener: (notice: Notice) => unknown): this;
  off(kind: NoticeKind | "notice", listener: (notice: Notice) => unknown): this;

  publish(channel: string, payload: Payload, patience?: Patience): Promise<void>;
  publishAll(payload: Payload, patience?: Patience): Promise<void>;
  publishTo(target: string, payload: Payload, patience?: Patience): Promise<void>;
  sendDatagram(datagram: Uint8Array, patience?: Patience): Promise<void>;
  batch(): Batch;
  barrier(patience?: Patience): Promise<void>;

  subscribe(pattern: string, patience?: Patience): Promise<Subscription>;
  subscribe(pattern: string, callback?: (message: Message) => unknown, patience?: Patience): Promise<Subscription>;
  listen(patience?: Patience): Promise<void>;
  listen(callback?: (message: Message) => unknown, patience?: Patience): Promise<void>;
  /** undefined: nothing came in time. Without a time it waits for ever. */
  receive(patience?: Patience): Promise<Message | undefined>;
  [Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined>;

  /**
   * What the recorder of the host wrote of these channels, in order. Without `to` it goes on with what comes. Notices
   * of the kind `unrecorded` say what may be missing. It fails when the connection ends: begin again one nanosecond
   * behind the `timeNs` of the last message.
   */
  replay(pattern: string, span: { from: Time; to?: Time }, patience?: Patience): AsyncGenerator<Message, void, undefined>;

  request(channel: string, payload: Payload, patience?: Patience & { waitAnyway?: boolean }): Promise<Message>;
  requestMany(
    channel: string, payload: Payload, how?: Patience & { count?: number; waitAnyway?: boolean },
  ): AsyncGenerator<Message, void, undefined>;
  serve(
    pattern: string,
    handler: (request: Request) => Payload | undefined | void | Promise<Payload | undefined | void>,
    patience?: Patience & { concurrency?: number },
  ): Promise<Subscription>;
  asRequest(message: Message): Request | undefined;

  /**
   * Calls back with whether anybody else listens to what matches, here or on another host: as soon as it is known, and
   * at each change, over connections, too. Calls are one at a time: while one has not ended, only the last state is kept.
   */
  watch(pattern: string, callback: (pattern: string, wanted: boolean) => unknown, patience?: Patience): Promise<void>;
  unwatch(pattern: string, patience?: Patience): Promise<void>;

  /** Every so many milliseconds, whole seconds of them; 0 ends it. */
  heartbeat(every: number, text?: string, patience?: Patience): Promise<void>;
  control(key: string, value?: string, patience?: Patience): Promise<string>;
  status(patience?: Patience): Promise<any>;
  clients(patience?: Patience): Promise<any[]>;
  sources(patience?: Patience): Promise<any[]>;
  /** What the door finds wrong with the bus of its host; not with clients of these names. Needs the right to observe. */
  doctor(patience?: Patience & { without?: string[] }): Promise<Examination>;
}

/** `level` is `ok`, `warning` or `problem`; `remedy` is empty where there is nothing to do. */
export interface Examination {
  problems: number;
  warnings: number;
  findings: { level: string; what: string; finding: string; remedy: string }[];
}

export interface Subscription extends AsyncIterable<Message>, AsyncDisposable {
  readonly pattern: string;
  /** How many messages wait for the callbacks, with the one that they are called with, or in its own stream. */
  readonly pending: number;
  on(event: "message", callback: (message: Message) => unknown): this;
  off(event: "message", callback: (message: Message) => unknown): this;
  receive(patience?: Patience): Promise<Message | undefined>;
  close(patience?: Patience): Promise<void>;
  [Symbol.asyncIterator](): AsyncGenerator<Message, void, undefined>;
}

export interface Batch extends AsyncDisposable {
  publish(channel: string, payload: Payload, patience?: Patience): Promise<void>;
  flush(patience?: Patience): Promise<void>;
}

/** Those who get the same message share its bytes: whoever changes them makes a copy. */
export interface Message {
  /** `!` and `!<target>`: to all, and to this program. */
  readonly channel: string;
  readonly payload: Uint8Array;
  /** The payload as UTF-8. */
  readonly text: string;
  /** How many messages the daemon dropped directly before this one. */
  readonly lost: number;
  /** Whether it is the last value of its channel, from before the subscription. */
  readonly retained: boolean;
  /** Those below are undefined in the format `plain`. */
  readonly src?: string;
  readonly seq?: bigint;
  readonly peer?: string;
  /** When the daemon received it: nanoseconds since the epoch. */
  readonly timeNs?: bigint;
  readonly verdict?: string;
  readonly datagram?: Uint8Array;
  /** With the tap `interface`: by which it came. */
  readonly interface?: string;
}

/** A request to this program. Its payload is without the token. */
export interface Request extends Message {
  reply(payload: Payload, patience?: Patience): Promise<void>;
}

export interface Notice {
  readonly kind: NoticeKind;
  readonly text: string;
  readonly count: number;
  readonly error: Error | undefined;
  toString(): string;
}

/** Whether a subscription to the pattern brings messages of the channel. */
export function matches(pattern: string, channel: string, separator?: Separator): boolean;

/** Of this package. */
export const version: string;

/** The root of the tree of errors. `code` is the word of clients/PROTOCOL.md for it. */
export class BccnError extends Error {
  code: string;
  constructor(code: string, text: string, options?: ErrorOptions);
}
export class InvalidError extends BccnError {
  constructor(text: string);
}
export class UnavailableError extends BccnError {
  constructor(text: string, options?: ErrorOptions);
}
export class UnconfirmedError extends UnavailableError {
  constructor(text: string);
}
export class TimedOutError extends BccnError {
  constructor(text: string);
}
export class NobodyListensError extends BccnError {
  constructor(text: string);
}
export class BacklogError extends BccnError {
  constructor(text: string);
}
export class ClosedError extends BccnError {
  constructor(text: string);
}
export class ProtocolError extends BccnError {
  constructor(text: string);
}
/** The daemon rejects it: `code` is its word for that, `text` begins with the packet that it is about. */
export class RejectedError extends BccnError {
  text: string;
  constructor(code: string, text: string);
}
export class RefusedError extends RejectedError {}
