/** What the doctor finds, worst first, without a document. */

/** @typedef {{level: string, what: string, finding: string, remedy: string}} Finding */

const LEVELS = ["problem", "warning"];

/**
 * @param {Finding[]} findings
 * @returns {{wrong: Finding[], sound: Finding[], sum: string}}
 */
export function examined(findings) {
  const wrong = LEVELS.flatMap((level) => findings.filter((each) => each.level === level));
  const counts = LEVELS.map((level) => counted(wrong.filter((each) => each.level === level).length, level));
  return {
    wrong,
    sound: findings.filter(({ level }) => !LEVELS.includes(level)),
    sum: counts.filter(Boolean).join(", ") || "Nothing is wrong, as far as the daemon's answers show.",
  };
}

/** @param {number} count @param {string} noun */
function counted(count, noun) {
  return count ? `${count} ${noun}${count > 1 ? "s" : ""}` : "";
}
