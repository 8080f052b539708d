/** What a program finds in this package, besides `connect`. */

export { Batch } from "./batch.js";
export { Client } from "./client.js";
export {
  BacklogError, BccnError, ClosedError, InvalidError, NobodyListensError, ProtocolError, RefusedError, RejectedError,
  TimedOutError, UnavailableError, UnconfirmedError,
} from "./errors.js";
export { Notice } from "./notices.js";
export { matches } from "./patterns.js";
export { Message } from "./protocol.js";
export { Request } from "./request.js";
export { Subscription } from "./subscription.js";

export const version = "0.1.0";
