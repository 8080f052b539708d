/** What uplinks say of themselves, as rows. Any program may reply, with whatever it likes: what is no such thing is left out. */

/** @typedef {import("./figures.js").Cell} Cell */

// Of replies that are taken, and of the segments of an uplink that are named.
export const PARTS_LIMIT = 1000;
const SEGMENTS_SHOWN = 8;
const decoder = new TextDecoder();

export const LINK_HEADS = ["uplink", "segment", "state", "round trip", "waiting", "repaired", "lost", "hears"];

/**
 * An answer is a part about the uplink, and one for each other segment that it hears.
 * @param {Uint8Array[]} payloads
 * @returns {Cell[][]}
 */
export function linkRows(payloads) {
  const parts = payloads.map(read).filter((part) => part !== undefined);
  const uplinks = parts.filter(({ state }) => typeof state === "string");
  uplinks.sort((a, b) => (a.uplink < b.uplink ? -1 : 1));
  return uplinks.map((uplink) => {
    const hears = parts.filter((part) => part.uplink === uplink.uplink && isObject(part.link));
    const names = hears.map(({ link }) => text(link.segment)).sort();
    const more = names.length - SEGMENTS_SHOWN;
    return [
      { text: uplink.uplink },
      { text: text(uplink.segment) },
      { text: uplink.state, isWarning: uplink.state !== "up" },
      { text: isNumber(uplink.round_trip) ? `${(1000 * uplink.round_trip).toFixed(1)} ms` : "", isNumber: true },
      figure(uplink.waiting),
      figure(uplink.repaired),
      { ...figure(lost(uplink)), isWarning: lost(uplink) > 0 },
      { text: names.slice(0, SEGMENTS_SHOWN).join(", ") + (more > 0 ? ` and ${more} more` : "") },
    ];
  });
}

/** undefined: it is none. @param {Uint8Array} payload */
function read(payload) {
  try {
    const part = JSON.parse(decoder.decode(payload));
    return isObject(part) && typeof part.uplink === "string" ? part : undefined;
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
