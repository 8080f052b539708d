/** The tail and what it is filtered by. */

import { line, shown } from "./shown.js";
import { put } from "./tree_view.js";

export class TailView {
  #tail;
  #parts;
  /** What is in the document already. */
  #drawn = new Map();

  /**
   * @param {import("./tail.js").Tail} tail
   * @param {Record<"list" | "note" | "pause" | "pattern" | "contains" | "form", any>} parts
   */
  constructor(tail, parts) {
    this.#tail = tail;
    this.#parts = parts;
    const filter = () => {
      tail.filter(parts.pattern.value.trim(), parts.contains.value);
      this.draw();
    };
    parts.pattern.addEventListener("input", filter);
    parts.contains.addEventListener("input", filter);
    parts.form.addEventListener("change", () => {
      this.#drawn.clear();
      parts.list.replaceChildren();
      this.draw();
    });
    parts.pause.addEventListener("click", () => {
      tail.pause(!tail.isPaused);
      this.draw();
    });
  }

  draw() {
    const { list, note, pause, form } = this.#parts;
    pause.setAttribute("aria-pressed", `${this.#tail.isPaused}`);
    const passed = this.#tail.passed.toLocaleString("en");
    put(note, this.#tail.isPaused ? `Paused; ${passed} messages have passed since.` : "");
    const isAtEnd = list.scrollTop + list.clientHeight >= list.scrollHeight - 8;
    const lines = new Set(this.#tail.lines);
    for (const [entry, element] of this.#drawn) {
      if (lines.has(entry)) continue;
      element.remove();
      this.#drawn.delete(entry);
    }
    const fresh = this.#tail.lines.filter((entry) => !this.#drawn.has(entry));
    list.append(...fresh.map((entry) => {
      const element = item(entry, form.value);
      this.#drawn.set(entry, element);
      return element;
    }));
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }
}

/**
 * @param {{message: any, at: Date}} entry
 * @param {"text" | "JSON" | "hex"} form
 */
function item({ message, at }, form) {
  const time = document.createElement("time");
  time.textContent = at.toTimeString().slice(0, 8);
  const channel = document.createElement("span");
  channel.className = "channel";
  channel.textContent = line(message.channel);
  const element = document.createElement("li");
  if (message.lost) {
    const lost = document.createElement("span");
    lost.className = "warning";
    lost.textContent = `${message.lost} not shown\n`;
    element.append(lost);
  }
  element.append(time, " ", channel, " ", shown(message.payload, form));
  return element;
}
