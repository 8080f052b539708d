/** The golden vectors (clients/vectors/README.md). */

import { readFileSync } from "node:fs";

/**
 * @param {string} file
 * @param {string} list
 * @returns {any[]}
 */
export function vectors(file, list) {
  const url = new URL(`../../vectors/${file}.json`, import.meta.url);
  const found = JSON.parse(readFileSync(url, "utf8"))[list];
  if (!found?.length) throw new Error(`${file}.json has no ${list}`);
  return found;
}

/** @param {string} hex */
export const unhex = (hex) => new Uint8Array(Buffer.from(hex, "hex"));

/** @param {Uint8Array} bytes */
export const hexOf = (bytes) => Buffer.from(bytes).toString("hex");
