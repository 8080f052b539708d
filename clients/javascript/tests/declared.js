/** What bccn.d.ts says there is, is there: the type checker compares both. */

import * as browser from "../src/browser.js";
import * as node from "../src/node.js";

/** @type {readonly (typeof import("../bccn.js"))[]} */
export const declared = [node, browser];
