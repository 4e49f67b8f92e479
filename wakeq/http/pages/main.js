// Chooses the page by the part of the address after the #, so that every page has an address.

import { h } from "./dom.js";
import { cluster, slow, workers } from "./node.js";
import { queue } from "./queue.js";
import { dead, queues } from "./queues.js";

const PAGES = [["queues", "Queues", queues], ["dead", "Dead letters", dead], ["workers", "Workers", workers], ["cluster", "Cluster", cluster], ["slow", "Slow spots", slow]];

// A percent sign that begins no escape was typed by hand and stands for itself.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const [, page = "queues", name = ""] = location.hash.match(/^#\/([^/]*)\/?(.*)$/) ?? [];
  const main = document.getElementById("main");
  const current = page === "queue" ? "queues" : page;
  document.getElementById("pages").replaceChildren(...PAGES.map(([path, title]) =>
    h("a", { href: `#/${path}`, "aria-current": path === current ? "page" : null }, title)));
  if (page === "queue") queue(main, decoded(name));
  else (PAGES.find(([path]) => path === page) ?? PAGES[0])[2](main);
  const title = main.querySelector("h1")?.textContent ?? "";
  document.title = title ? `${title} – wakeq` : "wakeq";
}

window.addEventListener("hashchange", () => {
  show();
  document.getElementById("main").focus();
});
show();
