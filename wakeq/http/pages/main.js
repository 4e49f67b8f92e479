// Chooses the page by the part of the address after the #, so that every page has an address.

import { signOut } from "./api.js";
import { cluster } from "./cluster.js";
import { dead } from "./dead.js";
import { h } from "./dom.js";
import { leave, subscribe } from "./live.js";
import { message } from "./message.js";
import { overview } from "./overview.js";
import { publishTo } from "./publish.js";
import { queue } from "./queue.js";
import { queues } from "./queues.js";
import { recurring } from "./recurring.js";
import { slow } from "./slow.js";
import { workers } from "./workers.js";

// A route is {path, draw, title, under}: the address #/path/a/b is drawn by draw(main, "a", "b").  A route with a title is in
// the navigation; another one belongs to the page `under`.  What draw returns, if anything, is called when the page is left.
const ROUTES = [
  { path: "overview", draw: overview, title: "Overview" },
  { path: "queues", draw: queues, title: "Queues" },
  { path: "queue", draw: queue, under: "queues" },
  { path: "message", draw: message, under: "queues" },
  { path: "dead", draw: dead, title: "Dead letters" },
  { path: "workers", draw: workers, title: "Workers" },
  { path: "recurring", draw: recurring, title: "Recurring" },
  { path: "cluster", draw: cluster, title: "Cluster" },
  { path: "slow", draw: slow, title: "Slow spots" },
];
let left = null;

// A percent sign that begins no escape was typed by hand and stands for itself.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function show() {
  const [path, ...parts] = location.hash.replace(/^#\/?/, "").split("/");
  const route = ROUTES.find((one) => one.path === path) ?? ROUTES[0];
  const main = document.getElementById("main");
  left?.();
  leave();
  document.getElementById("pages").replaceChildren(...ROUTES.filter((one) => one.title).map((one) =>
    h("a", { href: `#/${one.path}`, "aria-current": one.path === (route.under ?? route.path) ? "page" : null }, one.title)));
  main.replaceChildren();
  left = route.draw(main, ...parts.map(decoded)) ?? null;
  // A page without live figures still says whether the broker answers.
  subscribe({ limit: 1 }, () => {}, { unless: true });
  const title = main.querySelector("h1")?.textContent ?? "";
  document.title = title ? `${title} – wakeq` : "wakeq";
}

window.addEventListener("hashchange", () => {
  show();
  document.getElementById("main").focus();
});
document.getElementById("sign-out").onclick = signOut;
document.getElementById("publish").onclick = () => publishTo(location.hash.startsWith("#/queue/") ? decoded(location.hash.slice("#/queue/".length)) : "");
show();
