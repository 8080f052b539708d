/** Cells of tables, and clients as rows of them, slow ones first, without a document. */

/** @typedef {{text: string, isNumber?: boolean, isWarning?: boolean}} Cell */

/**
 * @param {any[]} clients  as the daemon reports them
 * @param {string[]} own  names of the page, which samples: it is slow on purpose, and comes last
 * @returns {Cell[][]}
 */
export function clientRows(clients, own = []) {
  const isOwn = (/** @type {any} */ { name }) => own.includes(name);
  return [...clients]
    .sort((a, b) => +isOwn(a) - +isOwn(b) || rank(b.slow) - rank(a.slow) || b.dropped - a.dropped || b.queued - a.queued)
    .map((row) => [
      { text: isOwn(row) ? `${row.name} (this page)` : row.name },
      { text: row.slow === null ? "" : isOwn(row) ? "samples" : `slow for ${seconds(row.slow)}`, isWarning: !isOwn(row) },
      number(row.queued),
      size(row.queued_bytes),
      { ...number(row.dropped), isWarning: row.dropped > 0 && !isOwn(row) },
      number(row.delivered),
      number(row.published),
      { text: row.policy },
    ]);
}
export const CLIENT_HEADS = ["client", "state", "queued", "bytes", "dropped", "delivered", "published", "when full"];

/** Not slow is behind slow for no time yet. @param {number | null} slow */
function rank(slow) {
  return slow === null ? -1 : slow;
}

/** @param {number | undefined} value @returns {Cell} */
export function number(value) {
  return { text: value === undefined ? "" : value.toLocaleString("en"), isNumber: true };
}

/** @param {number | undefined} bytes @returns {Cell} */
function size(bytes) {
  if (bytes === undefined || bytes < 10_000) return number(bytes);
  const isLarge = bytes >= 10_000_000;
  return { text: `${Math.round(bytes / (isLarge ? 1e6 : 1e3)).toLocaleString("en")} ${isLarge ? "MB" : "kB"}`, isNumber: true };
}

/** @param {number} value */
export function seconds(value) {
  if (value < 120) return `${value.toFixed(1)} s`;
  return value < 7200 ? `${Math.round(value / 60)} min` : `${Math.round(value / 3600)} h`;
}
