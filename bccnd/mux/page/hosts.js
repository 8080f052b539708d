/** The sources that are heard, by host, those that lose most first, without a document. */

import { number, seconds } from "./figures.js";

/** @typedef {import("./figures.js").Cell} Cell */
/** @typedef {import("./table_view.js").Row} Row */

export const HOST_HEADS = ["host or source", "lost", "of all", "repaired", "silent for", "state", "address"];

/**
 * A row for each host, and behind it those of its sources where it is open.
 * @param {any[]} sources  as the daemon reports them
 * @param {Set<string>} open  hosts
 * @returns {Row[]}
 */
export function hostRows(sources, open) {
  const hosts = new Map();
  // What has no peer was a client of this host.
  for (const each of sources) {
    if (!each.peer) continue;
    const host = each.src.split("/", 1)[0];
    if (!hosts.has(host)) hosts.set(host, []);
    hosts.get(host).push(each);
  }
  const all = [...hosts].map(([name, own]) => ({ ...sumOf(own), own, src: name }));
  return all.sort(worstFirst).flatMap((host) => {
    const isOpen = open.has(host.src);
    const parts = isOpen ? host.own.sort(worstFirst) : [];
    return [
      { key: host.src, isOpen, cells: cellsOf(host, `${host.src} (${host.own.length})`) },
      ...parts.map((/** @type {any} */ each) => ({ key: `${each.src} `, isPart: true, cells: cellsOf(withState(each), each.src) })),
    ];
  });
}

/** @param {any[]} sources  of one host */
function sumOf(sources) {
  const sum = (/** @type {string} */ key) => sources.reduce((so, each) => so + (each[key] ?? 0), 0);
  const silent = sources.filter(({ state }) => state === "silent").length;
  return {
    received: sum("received"),
    lost: sum("lost"),
    repaired: sum("repaired"),
    silent: Math.min(...sources.map((each) => each.silent)),
    address: [...new Set(sources.map(addressOf))].join(", "),
    state: silent === sources.length && silent ? "silent" : silent ? `${silent} silent` : "",
    isSilent: silent > 0,
  };
}

/** @param {any} source */
function withState(source) {
  return { ...source, address: addressOf(source), state: source.state ?? "", isSilent: source.state === "silent" };
}

/** @param {any} source */
function addressOf({ peer, relayed }) {
  return relayed ? `by ${relayed.host}` : peer;
}

/**
 * @param {any} row  of a host or of a source
 * @param {string} name
 * @returns {Cell[]}
 */
function cellsOf(row, name) {
  const sent = row.received + row.lost;
  return [
    { text: name },
    { ...number(row.lost), isWarning: row.lost > 0 },
    { text: row.lost ? `${((100 * row.lost) / sent).toFixed(1)} %` : "", isNumber: true, isWarning: row.lost > 0 },
    number(row.repaired),
    { text: seconds(row.silent), isNumber: true },
    { text: row.state, isWarning: row.isSilent },
    { text: row.address },
  ];
}

/**
 * @param {{lost: number, repaired?: number, src: string}} a
 * @param {{lost: number, repaired?: number, src: string}} b
 */
function worstFirst(a, b) {
  return b.lost - a.lost || (b.repaired ?? 0) - (a.repaired ?? 0) || (a.src < b.src ? -1 : 1);
}
