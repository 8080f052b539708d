/** Elements of the document: to find one by its id, to fill and to make one. */

/** @param {string} id @returns {any} */
export function at(id) {
  return document.getElementById(id);
}

/**
 * Nothing is drawn anew that stays as it is.
 * @param {Element} element
 * @param {string} text
 */
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @param {string} name  of its class @param {string} text */
export function span(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}
