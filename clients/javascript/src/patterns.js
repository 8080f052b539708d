/** Which channels a pattern matches (clients/PROTOCOL.md, "Channels and patterns"). */

/**
 * Whether a subscription to `pattern` brings messages of `channel`. No pattern matches `!` and `!<target>`.
 * @param {string} pattern
 * @param {string} channel
 * @param {"/" | "."} [separator]
 * @returns {boolean}
 */
export function matches(pattern, channel, separator = "/") {
  if (channel.startsWith("!")) return false;
  for (let at = 0, begin = 0; ; ) {
    const end = pattern.indexOf(separator, at);
    const stop = channel.indexOf(separator, begin);
    if (end < 0) {
      const last = pattern.slice(at);
      if (last === "") return true;
      if (last === ">") return begin < channel.length;
      return stop < 0 && tokenMatches(last, channel.slice(begin));
    }
    if (stop < 0 || !tokenMatches(pattern.slice(at, end), channel.slice(begin, stop))) return false;
    at = end + 1;
    begin = stop + 1;
  }
}

/**
 * @param {string} pattern
 * @param {string} token
 */
function tokenMatches(pattern, token) {
  const star = pattern.indexOf("*");
  if (star < 0) return pattern === token;
  return star === pattern.length - 1 && token.startsWith(pattern.slice(0, -1)); // a * elsewhere never matches
}
