/** A request to this program. */

/** @typedef {import("./client.js").Client} Client */
/** @typedef {import("./client.js").Payload} Payload */
/** @typedef {import("./protocol.js").Message} Message */

import { encoded, Message as Base } from "./protocol.js";

/** A message whose `payload` is the question, without its token. */
export class Request extends Base {
  #token;
  #client;

  /**
   * @param {Message} message
   * @param {{token: Uint8Array, question: Uint8Array}} parts  the token with its LF
   * @param {Client} client
   */
  constructor(message, { token, question }, client) {
    super(message.channel, question);
    Object.assign(this, message, { payload: question });
    this.#token = token;
    this.#client = client;
  }

  /**
   * Replies to it, any number of times; as `publish`.
   * @param {Payload} payload
   * @param {import("./subscription.js").Patience} [patience]
   */
  async reply(payload, patience) {
    const reply = encoded(payload);
    const whole = new Uint8Array(this.#token.length + reply.length);
    whole.set(this.#token);
    whole.set(reply, this.#token.length);
    await this.#client.publish(`!${this.src}`, whole, patience);
  }
}
