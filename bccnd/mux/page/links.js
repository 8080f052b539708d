/**
 * What uplinks say of themselves, and gateways of this host, as rows. Any program may reply, with whatever it likes: what
 * is no such thing is left out.
 */

/** @typedef {import("./figures.js").Cell} Cell */

// Programs whose replies are taken, replies of each, and bytes of one: more than those of an uplink or a gateway.
export const PROGRAMS_LIMIT = 64;
export const PARTS_LIMIT = 65;
const PART_BYTES = 4000;
// Of the segments of an uplink, or the peers of a gateway, that are named.
const SEGMENTS_SHOWN = 8;
const decoder = new TextDecoder();

export const LINK_HEADS = ["uplink or gateway", "segment", "state", "round trip", "waiting", "repaired", "lost", "hears"];

/** The replies that are taken: so many of each program that replies, so that none takes the room of another. */
export class Taken {
  /** @type {{src?: string, payload: Uint8Array}[]} */
  replies = [];
  /** @type {Map<string, number>} */
  #counts = new Map();

  /** @param {{src?: string, payload: Uint8Array}} reply */
  take(reply) {
    const { src = "", payload } = reply;
    const count = this.#counts.get(src) ?? 0;
    const hasRoom = count ? count < PARTS_LIMIT : this.#counts.size < PROGRAMS_LIMIT;
    if (!hasRoom || payload.length > PART_BYTES) return;
    this.#counts.set(src, count + 1);
    this.replies.push(reply);
  }
}

/**
 * An answer is a part about the uplink, and one for each other segment that it hears.
 * @param {Uint8Array[]} payloads
 * @returns {Cell[][]}
 */
export function linkRows(payloads) {
  const parts = payloads.map((payload) => read(payload, "uplink")).filter((part) => part !== undefined);
  const uplinks = parts.filter(({ state }) => typeof state === "string");
  uplinks.sort((a, b) => (a.uplink < b.uplink ? -1 : 1));
  return uplinks.map((uplink) => {
    const hears = parts.filter((part) => part.uplink === uplink.uplink && isObject(part.link));
    const names = hears.map(({ link }) => text(link.segment)).sort();
    return [
      { text: uplink.uplink },
      { text: text(uplink.segment) },
      { text: uplink.state, isWarning: uplink.state !== "up" },
      { text: isNumber(uplink.round_trip) ? `${(1000 * uplink.round_trip).toFixed(1)} ms` : "", isNumber: true },
      figure(uplink.waiting),
      figure(uplink.repaired),
      { ...figure(lost(uplink)), isWarning: lost(uplink) > 0 },
      { text: shownOf(names, names.length) },
    ];
  });
}

/**
 * An answer is a part about the gateway, and one for each peer in trouble, the worst first. Each counts only under the
 * name that it comes from.
 * @param {{src?: string, payload: Uint8Array}[]} replies
 * @returns {Cell[][]}
 */
export function gatewayRows(replies) {
  const said = replies.map(({ src, payload }) => ({ src, part: read(payload, "gateway") }));
  const parts = said.filter(({ src, part }) => part !== undefined && part.gateway === src).map(({ part }) => part);
  return parts
    .filter(({ state }) => typeof state === "string")
    .map((gateway) => {
      const troubles = parts.filter((part) => part.gateway === gateway.gateway && isObject(part.trouble));
      const names = troubles.map(({ trouble }) => `${text(trouble.peer)} ${text(trouble.kind)}`);
      const count = names.length + (isNumber(gateway.more_troubles) ? gateway.more_troubles : 0);
      const total = lost({ losses: gateway.lost });
      const peers = isNumber(gateway.peers) ? `${gateway.peers} peers` : "";
      return [
        { text: gateway.gateway },
        { text: text(gateway.bus) },
        { text: count ? `${count} in trouble` : gateway.state, isWarning: count > 0 || gateway.state !== "up" },
        figure(undefined),
        figure(undefined),
        figure(undefined),
        { ...figure(total), isWarning: total > 0 },
        { text: [peers, shownOf(names, count)].filter(Boolean).join("; ") },
      ];
    });
}

/** @param {string[]} names  @param {number} count  of all */
function shownOf(names, count) {
  const shown = names.slice(0, SEGMENTS_SHOWN);
  return shown.join(", ") + (count > shown.length ? ` and ${count - shown.length} more` : "");
}

/** undefined: it is none. @param {Uint8Array} payload  @param {string} program  the key of its name */
function read(payload, program) {
  try {
    const part = JSON.parse(decoder.decode(payload));
    return isObject(part) && typeof part[program] === "string" ? part : undefined;
  } catch {
    return undefined;
  }
}

/** All kinds of loss, where they are told apart. @param {any} uplink */
function lost(uplink) {
  const kinds = isObject(uplink.losses) ? Object.values(uplink.losses) : [uplink.lost];
  return kinds.filter(isNumber).reduce((sum, each) => sum + each, 0);
}

/** @param {any} value */
function isObject(value) {
  return typeof value === "object" && value !== null;
}

/** @param {any} value @returns {value is number} */
function isNumber(value) {
  return typeof value === "number";
}

/** @param {any} value */
function text(value) {
  return typeof value === "string" ? value : "";
}

/** @param {any} value @returns {Cell} */
function figure(value) {
  return { text: isNumber(value) ? value.toLocaleString("en") : "", isNumber: true };
}
