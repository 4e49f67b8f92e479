// The page of all queues.

import { legend, spark } from "./chart.js";
import { age, bytes, cards, count, h, linkTo, rate, table } from "./dom.js";
import { live, recent, seriesOf, shows, subscribe } from "./live.js";
import { put } from "./put.js";

const last = (name, which) => rate(recent(seriesOf(name)[which]));

function columns(at) {
  return [
    { name: "Queue", kind: "text", cell: (queue) => [linkTo(queue.name), queue.paused_until_ms ? h("span", { class: "badge warn" }, "paused") : null] .flatMap((part) => (part ? [part, " "] : [])) },
    { name: "Last minute", kind: "narrow", cell: (queue) => spark(seriesOf(queue.name)) },
    { name: "Ready", kind: "number", cell: (queue) => count(queue.ready) },
    { name: "Delayed", kind: "number", optional: true, cell: (queue) => count(queue.delayed) },
    { name: "Leased", kind: "number", cell: (queue) => count(queue.leased) },
    { name: "Published /s", kind: "number", optional: true, cell: (queue) => last(queue.name, "ins") },
    { name: "Acknowledged /s", kind: "number", optional: true, cell: (queue) => last(queue.name, "outs") },
    { name: "Oldest", kind: "number", cell: (queue) => age(queue, at) },
    { name: "Workers", kind: "number", optional: true, cell: (queue) => count(queue.subscribers) },
    { name: "Dead letters", kind: "number", optional: true, cell: (queue) => count(queue.dead) },
  ];
}

export function queues(main) {
  const summary = h("div", {});
  const list = h("div", { id: "queues" });
  const filter = h("input", { type: "search", "aria-label": "Only queues whose name begins with", placeholder: "Name begins with …" });
  main.replaceChildren(h("h1", {}, "Queues"), summary, h("div", { class: "tools" }, filter), list);
  const draw = (seen) => {
    const { totals, figures } = seen;
    const now = (name) => rate(recent(live.totals[name] ?? []));
    put(summary, cards([
      ["Ready", count(totals.ready)], ["Delayed", count(totals.delayed)], ["Leased", count(totals.leased)],
      ["Published", now("published"), "/s"], ["Acknowledged", now("acked"), "/s"],
      ["Released", now("released"), "/s"], ["Dead letters", count(totals.letters ?? 0)],
      ["Size", bytes(totals.bytes)], ...(shows(figures) ? [["Connections", count(connections(figures))]] : [])]));
    const caption = seen.error ? [seen.error] : [`${count(seen.queues.length)} of ${count(seen.queues_total)} queues, the fullest first `, legend()];
    put(list, table(caption, columns(seen.at_ms), seen.queues, "No queues. Publish a message, and its queue appears here."));
  };
  const start = () => subscribe({ prefix: filter.value }, draw);
  filter.addEventListener("input", start);
  start();
}

const connections = (figures) => Object.entries(figures).filter(([name]) => name.startsWith("wakeq_connections:")).reduce((sum, [, value]) => sum + value, 0);
