// A menu of actions behind a button.

import { h } from "./dom.js";

const EDGE_PX = 8;

// Open a menu at a button.  An item is {text, go, destroys}.  The browser closes it when something else is pressed.
export function openMenu(button, items) {
  const menu = document.getElementById("menu");
  menu.replaceChildren(...items.map(({ text, go, destroys = false }) =>
    h("button", { role: "menuitem", tabindex: -1, class: destroys ? "destroys" : null, onclick: () => { menu.hidePopover(); button.focus(); go(); } }, text)));
  menu.onkeydown = (event) => move(event, [...menu.children]);
  menu.onbeforetoggle = (event) => button.setAttribute("aria-expanded", String(event.newState === "open"));
  menu.showPopover();
  const [place, size] = [button.getBoundingClientRect(), menu.getBoundingClientRect()];
  const isBelow = place.bottom + size.height + EDGE_PX < window.innerHeight;
  menu.style.top = `${isBelow ? place.bottom + 2 : Math.max(EDGE_PX, place.top - size.height - 2)}px`;
  menu.style.left = `${Math.max(EDGE_PX, Math.min(place.right - size.width, window.innerWidth - size.width - EDGE_PX))}px`;
  menu.firstElementChild?.focus();
}

function move(event, items) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
}

export const menuButton = (label, items) => h("button", { class: "small menu", "aria-haspopup": "menu", "aria-label": label,
  onclick: (event) => openMenu(event.currentTarget, items()) }, "⋯");
