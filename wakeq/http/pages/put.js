// Replaces the content of an element by new content, and refreshes a list.

import { present } from "./dom.js";

// Change an element's children into the wanted ones, and leave equal ones alone: twice a second, focus and scroll position
// must survive. Rows are recognised by their key wherever they are.
export function put(place, ...wanted) {
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  match(place, present(wanted).map((one) => (one instanceof Node ? one : document.createTextNode(one))));
  if (focused === null || focused === document.activeElement) return;
  (focused.isConnected ? focused : place.querySelector("[tabindex]"))?.focus({ preventScroll: true });
}

const REFRESH_MS = 2000;

// Refresh while the page is visible, at most every two seconds, and never a row that somebody is about to press.
export function again(list, refresh) {
  let last = performance.now();
  return () => {
    const now = performance.now();
    if (now - last < REFRESH_MS || document.hidden || list.matches(":hover, :focus-within") || document.getElementById("dialog").open) return;
    last = now;
    refresh();
  };
}

const keyOf = (node) => node.dataset?.key;

function match(place, wanted) {
  const known = new Map([...place.childNodes].filter((one) => keyOf(one) !== undefined).map((one) => [keyOf(one), one]));
  let here = place.firstChild;
  for (const next of wanted) {
    const key = keyOf(next);
    const old = key === undefined ? here : known.get(key);
    if (old && old.nodeName === next.nodeName && keyOf(old) === key) {
      if (old === here) here = here.nextSibling;
      else place.insertBefore(old, here);
      renew(old, next);
    } else {
      place.insertBefore(next, here);
    }
  }
  while (here) {
    const gone = here;
    here = here.nextSibling;
    gone.remove();
  }
}

function renew(old, next) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== next.data) old.data = next.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const event of ["onclick", "onchange", "oninput"]) old[event] = next[event];
  match(old, [...next.childNodes]);
}
