/** Payloads and figures as text. What strangers sent never becomes markup, nor turns the direction of a line. */

// Of a payload. A datagram has less; a local channel may have 64 KiB.
export const BYTES_SHOWN = 2048;
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const decoder = new TextDecoder();

/**
 * @param {Uint8Array} payload
 * @param {"text" | "JSON" | "hex"} form
 */
export function shown(payload, form) {
  const part = payload.subarray(0, BYTES_SHOWN);
  const rest = payload.length - part.length;
  const end = rest ? ` … and ${rest} bytes` : "";
  if (form === "hex") return hex(part) + end;
  const json = form === "JSON" && !rest ? indented(part) : undefined;
  return (json ?? line(decoder.decode(part))) + end;
}

/** One line of it. @param {string} text */
export function line(text) {
  return text.replace(UNSAFE, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** undefined: it is none. @param {Uint8Array} payload */
function indented(payload) {
  try {
    const text = JSON.stringify(JSON.parse(decoder.decode(payload)), null, 2);
    return text.split("\n").map(line).join("\n");
  } catch {
    return undefined;
  }
}

/** @param {Uint8Array} bytes */
function hex(bytes) {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** Messages a second. @param {number} value */
export function rate(value) {
  if (value < 0.05) return "0";
  return value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
}
