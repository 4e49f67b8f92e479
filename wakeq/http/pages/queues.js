// The page of all queues: sorted by any column, filtered by any part of the name, page by page.
// The broker sorts and filters, so that ten thousand queues are no more work for the page than fifty.

import { legend, spark } from "./chart.js";
import { age, count, h, linkTo, rate, table } from "./dom.js";
import { recent, seriesOf, subscribe } from "./live.js";
import { put } from "./put.js";
import { statusBadge } from "./status.js";

const PAGE = 50;
const TYPING_MS = 150;
const [NOW, RATES, TOTAL] = ["Now", "Per second", "In total"];

// What somebody has chosen is still chosen when the page comes again.
const chosen = { contains: "", sort: "messages", ascending: false, offset: 0, dead_letters: "shown" };

const last = (name, which) => rate(recent(seriesOf(name)[which]));

export function columns(at) {
  return [
    { name: "Queue", kind: "text", sort: "name", cell: (queue) => linkTo(queue.name) },
    { name: "Status", kind: "narrow", cell: (queue) => statusBadge(queue) },
    { name: "Last minute", kind: "narrow", optional: true, cell: (queue) => spark(seriesOf(queue.name)) },
    { name: "Ready", kind: "number", group: NOW, sort: "ready", cell: (queue) => count(queue.ready) },
    { name: "Delayed", kind: "number", group: NOW, sort: "delayed", optional: true, cell: (queue) => count(queue.delayed) },
    { name: "Leased", kind: "number", group: NOW, sort: "leased", cell: (queue) => count(queue.leased) },
    { name: "Oldest", kind: "number", group: NOW, sort: "oldest", optional: true, cell: (queue) => age(queue, at) },
    { name: "Subscribers", kind: "number", group: NOW, sort: "workers", optional: true, cell: (queue) => count(queue.subscribers) },
    { name: "Published", kind: "number", group: RATES, sort: "published", optional: true, cell: (queue) => last(queue.name, "ins") },
    { name: "Acknowledged", kind: "number", group: RATES, sort: "acknowledged", optional: true, cell: (queue) => last(queue.name, "outs") },
    { name: "Dead-lettered", kind: "number roomy", group: TOTAL, sort: "dead", optional: true, cell: (queue) => count(queue.dead) },
  ];
}

export function queues(main) {
  const list = h("div", { id: "queues" });
  const pager = h("div", { class: "tools pager" });
  const filter = h("input", { type: "search", "aria-label": "Filter by any part of the name", placeholder: "Filter by name", value: chosen.contains });
  const hides = h("input", { type: "checkbox", checked: chosen.dead_letters === "hidden" });
  main.replaceChildren(h("div", { class: "heading" }, h("h1", {}, "Queues"), h("div", { class: "tools" }, filter, h("label", { class: "switch" }, hides, "Hide dead-letter queues"))), list, pager);

  const draw = (seen) => {
    const rows = list.querySelector("tbody:hover") ? inThePlacesOf(list, seen.queues) : seen.queues;
    const none = chosen.contains
      ? [`No queue has “${chosen.contains}” in its name. `, h("button", { class: "small", onclick: () => { filter.value = ""; change({ contains: "" }); } }, "Clear the filter")]
      : seen.queues_total ? "No other queues." : ["No queues yet. Publish a message, and its queue appears here: ", h("code", {}, "wakeq pub jobs hello")];
    const order = { sort: chosen.sort, ascending: chosen.ascending, choose };
    const which = seen.queues_found < seen.queues_total ? `${count(seen.queues_found)} of ${count(seen.queues_total)} queues` : `${count(seen.queues_total)} queues`;
    put(list, table([`${which}${chosen.sort === "messages" ? ", those with most messages first" : ""} `, legend()], columns(seen.at_ms), rows, none, order));
    put(pager, ...pages(seen.queues_found));
  };
  const start = () => subscribe({ ...chosen, limit: PAGE }, draw);
  const change = (what) => {
    Object.assign(chosen, { offset: 0 }, what);
    start();
  };
  // Numbers begin with the largest, names with A; pressed again, a column turns around.
  const choose = (sort) => change({ sort, ascending: chosen.sort === sort ? !chosen.ascending : sort === "name" });
  const pages = (found) => (found <= PAGE && !chosen.offset ? [] : [
    h("button", { disabled: chosen.offset === 0, onclick: () => change({ offset: Math.max(0, chosen.offset - PAGE) }) }, "Previous"),
    h("span", { class: "soft" }, `${count(Math.min(found, chosen.offset + 1))} to ${count(Math.min(found, chosen.offset + PAGE))} of ${count(found)}`),
    h("button", { disabled: chosen.offset + PAGE >= found, onclick: () => change({ offset: chosen.offset + PAGE }) }, "Next")]);

  let typing = null;
  filter.oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(() => change({ contains: filter.value }), TYPING_MS);
  };
  hides.onchange = () => change({ dead_letters: hides.checked ? "hidden" : "shown" });
  start();
  return () => clearTimeout(typing);
}

// Rows keep their places under the mouse, so that nobody presses another one than they saw.
function inThePlacesOf(list, found) {
  const places = new Map([...list.querySelectorAll("tbody tr")].map((row, place) => [row.dataset.key, place]));
  const place = (queue) => places.get(queue.name) ?? Infinity;
  return [...found].sort((one, other) => (place(one) === place(other) ? 0 : place(one) - place(other)));
}
