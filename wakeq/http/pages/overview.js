// The first page: how the broker is, which queues need somebody, and the charts of the node.

import { charts } from "./chart.js";
import { bytes, cards, count, h, linkTo, rate, table } from "./dom.js";
import { live, recent, shows, subscribe } from "./live.js";
import { publishTo } from "./publish.js";
import { put } from "./put.js";
import { statusBadge, statusOf } from "./status.js";

const SHOWN = 5; // queues that need somebody
const URGENT = new Set(["bad", "warn"]);

export function overview(main) {
  const summary = h("div", {});
  const attention = h("div", { id: "attention" });
  const drawn = h("section", { "aria-label": "Charts" });
  main.replaceChildren(h("h1", {}, "Overview"), summary, attention, drawn);
  const stop = charts(drawn);
  subscribe({ sort: "attention", limit: 100 }, (seen) => {
    put(summary, ...figures(seen));
    put(attention, ...urgent(seen));
  });
  return stop;
}

function figures({ totals, figures: node, queues_total: queues }) {
  const now = (name) => rate(recent(live.totals[name] ?? []));
  const total = [
    ["Ready", count(totals.ready)], ["Delayed", count(totals.delayed)], ["Leased", count(totals.leased)],
    ["Dead letters", count(totals.letters)], ["Published", now("published"), "/s"], ["Acknowledged", now("acked"), "/s"],
    ["Queues", count(queues)], shows(node) ? ["Connections", count(connections(node))] : ["Size", bytes(totals.bytes)]];
  if (totals.published || totals.ready || totals.delayed || totals.leased) return [cards(total)];
  return [h("div", { class: "empty" }, h("h2", {}, "This broker has no messages yet"),
    h("p", {}, "Publish the first one here, on the command line, or from a program:"),
    h("pre", {}, "wakeq pub jobs hello"),
    h("button", { class: "main", onclick: () => publishTo("jobs") }, "Publish a message")), cards(total)];
}

const connections = (figures) => Object.entries(figures).filter(([name]) => name.startsWith("wakeq_connections:")).reduce((sum, [, value]) => sum + value, 0);

function urgent(seen) {
  const found = seen.queues.filter((queue) => URGENT.has(statusOf(queue)[1]));
  if (!found.length) return [];
  const more = found.length > SHOWN ? h("p", {}, h("a", { href: "#/queues" }, "All queues")) : null;
  return [h("h2", {}, "Needs attention"), table(`Queues that need somebody; ${count(Math.min(SHOWN, found.length))} of ${count(found.length)}${found.length === seen.queues.length && found.length < seen.queues_total ? " or more" : ""}`, [
    { name: "Queue", kind: "text", cell: (queue) => linkTo(queue.name) },
    { name: "Status", kind: "narrow", cell: statusBadge },
    { name: "Messages", kind: "number", cell: (queue) => count(queue.ready + queue.delayed + queue.leased) },
    { name: "What it means", kind: "text", optional: true, cell: (queue) => h("span", { class: "soft" }, statusOf(queue)[2]) },
  ], found.slice(0, SHOWN)), more];
}
