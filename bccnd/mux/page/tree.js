/**
 * The channels seen so far, as a tree of their tokens, without a document.
 *
 * - A channel is bounded in depth, and all of them in number: strangers choose them. What has no place is counted.
 * - Rates are of what was seen. Where that is a part of all, whoever draws them multiplies: nobody knows on which channels
 *   the rest was, and it is not those of the messages next to a gap.
 */

import { Rate } from "./rate.js";

export const NODES_LIMIT = 20_000;
export const DEPTH_LIMIT = 6;

class Node {
  /** @type {Map<string, Node>} */
  children = new Map();
  rate = new Rate();
  /** @type {Uint8Array | undefined} of a channel that ends here */
  last;
  /** Channels that end here or below. */
  channels = 0;

  /**
   * @param {string} name
   * @param {string} path
   * @param {number} depth
   */
  constructor(name, path, depth) {
    this.name = name;
    this.path = path;
    this.depth = depth;
  }
}

export class Tree {
  /** Nodes, and messages of channels that have no place. */
  size = 0;
  homeless = 0;
  #root = new Node("", "", -1);
  #limit;

  constructor(limit = NODES_LIMIT) {
    this.#limit = limit;
  }

  /**
   * @param {{channel: string, payload: Uint8Array, retained: boolean}} message
   * @param {number} now  seconds
   */
  note(message, now) {
    const count = message.retained ? 0 : 1;
    let node = this.#root;
    /** @type {Node[]} */
    const above = [];
    for (const name of tokens(message.channel)) {
      let next = node.children.get(name);
      if (!next) {
        if (this.size >= this.#limit) {
          this.homeless += count;
          return;
        }
        const path = node.depth < 0 ? name : `${node.path}/${name}`;
        node.children.set(name, (next = new Node(name, path, node.depth + 1)));
        this.size += 1;
      }
      next.rate.add(count, now);
      above.push(next);
      node = next;
    }
    if (!node.last) for (const each of above) each.channels += 1;
    node.last = message.payload;
  }

  /**
   * What is to be seen, from the top, as long as there is room, and how much more there is.
   * @param {Set<string>} open  paths whose children are to be seen
   * @param {number} now  seconds
   * @param {number} room  rows
   */
  rows(open, now, room) {
    /** @type {{path: string, name: string, depth: number, isOpen: boolean | undefined, rate: number, last: Uint8Array | undefined, channels: number}[]} */
    const rows = [];
    let more = 0;
    const walk = (/** @type {Node} */ parent) => {
      for (const node of [...parent.children.values()].sort(byName)) {
        const isOpen = node.children.size ? open.has(node.path) : undefined;
        if (rows.length < room) {
          const { path, name, depth, last, channels } = node;
          rows.push({ path, name, depth, isOpen, rate: node.rate.at(now), last, channels });
        } else more += 1;
        if (isOpen) walk(node);
      }
    };
    walk(this.#root);
    return { rows, more };
  }
}

/** @param {string} channel */
function tokens(channel) {
  const all = channel.split("/");
  if (all.length <= DEPTH_LIMIT) return all;
  return [...all.slice(0, DEPTH_LIMIT - 1), all.slice(DEPTH_LIMIT - 1).join("/")];
}

/**
 * @param {Node} a
 * @param {Node} b
 */
function byName(a, b) {
  return a.name < b.name ? -1 : 1;
}
