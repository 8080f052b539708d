/** The tail and what it is filtered by. */

import { put, span } from "./elements.js";
import { faultOf } from "./faults.js";
import { line, shown } from "./shown.js";

// Milliseconds after the last key until a pattern is tried: each one is asked of the daemon.
const TYPED = 500;

export class TailView {
  #tail;
  #follow;
  #parts;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #typing;
  /** What is in the document already. */
  #drawn = new Map();

  /**
   * @param {import("./tail.js").Tail} tail
   * @param {(pattern: string) => Promise<boolean>} follow  subscribes; throws why not
   * @param {Record<"list" | "note" | "fault" | "pause" | "pattern" | "contains" | "form", any>} parts
   */
  constructor(tail, follow, parts) {
    this.#tail = tail;
    this.#follow = follow;
    this.#parts = parts;
    parts.pattern.addEventListener("input", () => this.#soon(TYPED));
    parts.pattern.addEventListener("change", () => this.#soon(0));
    parts.contains.addEventListener("input", () => {
      tail.filter(tail.pattern, parts.contains.value);
      this.#drawAnew(); // lines that come back stand between others
    });
    parts.form.addEventListener("change", () => this.#drawAnew());
    parts.pause.addEventListener("click", () => {
      tail.pause(!tail.isPaused);
      this.draw();
    });
  }

  /** @param {number} after  milliseconds */
  #soon(after) {
    clearTimeout(this.#typing);
    this.#typing = setTimeout(() => this.change(), after);
  }

  /** Follow the pattern that is in its box. */
  async change() {
    const { pattern, fault } = this.#parts;
    const wanted = pattern.value.trim() || ">";
    let why = "";
    try {
      if (await this.#follow(wanted)) this.#tail.filter(wanted, this.#tail.contains);
    } catch (error) {
      why = faultOf(wanted, error, this.#tail.pattern);
    }
    if (wanted !== (pattern.value.trim() || ">")) return; // it has changed meanwhile
    put(fault, why);
    pattern.setAttribute("aria-invalid", `${why !== ""}`);
    this.draw();
  }

  #drawAnew() {
    this.#drawn.clear();
    this.#parts.list.replaceChildren();
    this.draw();
  }

  draw() {
    const { list, note, pause, form } = this.#parts;
    pause.setAttribute("aria-pressed", `${this.#tail.isPaused}`);
    const passed = this.#tail.passed.toLocaleString("en");
    const none = this.#tail.contains ? `No message that contains ${this.#tail.contains} yet.` : "No message yet.";
    put(note, this.#tail.isPaused ? `Paused; ${passed} messages have passed since.` : this.#tail.lines.length ? "" : none);
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
  const element = document.createElement("li");
  if (message.lost) element.append(span("warning", `${message.lost.toLocaleString("en")} not shown\n`));
  const time = document.createElement("time");
  time.textContent = at.toTimeString().slice(0, 8);
  element.append(time, " ", span("channel", line(message.channel)), " ", shown(message.payload, form));
  if (message.retained) element.append(span("from-before", " (last value, from before)"));
  return element;
}
