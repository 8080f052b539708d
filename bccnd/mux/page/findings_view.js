/** The findings of the doctor. A list is made anew only where something of it has changed. */

import { put, span } from "./elements.js";
import { examined } from "./findings.js";
import { line } from "./shown.js";

/** @typedef {import("./findings.js").Finding} Finding */

export class FindingsView {
  #parts;
  #shown = "";

  /** @param {Record<"list" | "note" | "sound" | "soundList", HTMLElement>} parts */
  constructor(parts) {
    this.#parts = parts;
  }

  /** @param {Finding[]} findings */
  draw(findings) {
    const { list, note, sound, soundList } = this.#parts;
    const { wrong, sound: isSound, sum } = examined(findings);
    put(note, sum);
    const what = JSON.stringify(findings);
    if (what === this.#shown) return;
    this.#shown = what;
    list.replaceChildren(...wrong.map(item));
    soundList.replaceChildren(...isSound.map(item));
    sound.hidden = !isSound.length;
  }
}

/** @param {Finding} finding */
function item({ level, what, finding, remedy }) {
  const element = document.createElement("li");
  if (level !== "ok") element.append(span(level, level), " ");
  element.append(span("", `${what}: `), line(finding));
  if (remedy) element.append(span("remedy", `→ ${line(remedy)}`));
  return element;
}
