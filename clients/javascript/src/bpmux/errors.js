/** A chunk of the peer after which the connection is dropped. */
export class BpmuxError extends Error {
  /**
   * @param {"tag" | "id" | "state" | "credit" | "partial" | "limit"} rule  as in clients/BPMUX.md, "What is invalid"
   * @param {string} detail
   */
  constructor(rule, detail) {
    super(`${rule}: ${detail}`);
    this.name = "BpmuxError";
    this.rule = rule;
  }
}
