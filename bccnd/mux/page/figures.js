/** Rows of clients and sources, worst first, without a document. A cell is text, or a text with a warning. */

/** @typedef {{text: string, isNumber?: boolean, isWarning?: boolean}} Cell */

/**
 * @param {any[]} clients  as the daemon reports them
 * @returns {Cell[][]}
 */
export function clientRows(clients) {
  return [...clients]
    .sort((a, b) => rank(b.slow) - rank(a.slow) || b.dropped - a.dropped || b.queued - a.queued)
    .map((row) => [
      { text: row.name },
      { text: row.slow === null ? "" : `slow for ${seconds(row.slow)}`, isWarning: true },
      number(row.queued),
      { ...number(row.dropped), isWarning: row.dropped > 0 },
      number(row.delivered),
      number(row.published),
      { text: row.policy },
    ]);
}
export const CLIENT_HEADS = ["client", "state", "queued", "dropped", "delivered", "published", "policy"];

/**
 * @param {any[]} sources  as the daemon reports them
 * @returns {Cell[][]}
 */
export function sourceRows(sources) {
  return [...sources]
    .sort((a, b) => b.lost - a.lost || b.repaired - a.repaired || (a.src < b.src ? -1 : 1))
    .map((row) => [
      { text: row.src },
      { text: row.peer },
      { ...number(row.lost), isWarning: row.lost > 0 },
      number(row.repaired),
      { text: seconds(row.silent), isNumber: true },
      { text: row.state ?? "", isWarning: row.state === "silent" },
    ]);
}
export const SOURCE_HEADS = ["source", "address", "lost", "repaired", "silent for", "state"];

/** Not slow is behind slow for no time yet. @param {number | null} slow */
function rank(slow) {
  return slow === null ? -1 : slow;
}

/** @param {number | undefined} value @returns {Cell} */
function number(value) {
  return { text: value === undefined ? "" : value.toLocaleString("en"), isNumber: true };
}

/** @param {number} value */
function seconds(value) {
  return value < 120 ? `${value.toFixed(1)} s` : `${Math.round(value / 60)} min`;
}
