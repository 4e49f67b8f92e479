// The pages of all queues and of dead letters.

import { performAll } from "./api.js";
import { legend, recent, spark } from "./chart.js";
import { ask, bytes, cards, count, h, rate, shown, span, table } from "./dom.js";
import { live, seriesOf, shows, subscribe } from "./live.js";
import { put } from "./put.js";

// A long name may break after each of its parts.
export const linkTo = (name) => h("a", { href: `#/queue/${encodeURIComponent(name)}` },
  shown(name).split(/(?<=[.:/_-])/).flatMap((part, place) => (place ? [h("wbr"), part] : [part])));

const age = (queue, at) => (queue.ready && queue.oldest_ready_ms ? span((at - queue.oldest_ready_ms) / 1000) : "–");
const last = (name, which) => rate(recent(seriesOf(name)[which]));

function columns(at) {
  return [
    { name: "Queue", kind: "text", cell: (queue) => [linkTo(queue.name), queue.paused_until_ms ? h("span", { class: "badge paused" }, "paused") : null] .flatMap((part) => (part ? [part, " "] : [])) },
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

export async function redrive(name, where = []) {
  const asked = await ask("Redrive", `Move the dead letters of ${shown(name)} back, each to the queue that it came from?`, {
    fields: [{ name: "error", label: "Only those whose error contains (empty: all)" }, { name: "rate", label: "Messages per second (empty: no limit)", type: "number" }],
    go: "Redrive" });
  if (!asked) return;
  const conditions = asked.error ? [...where, `error~${asked.error}`] : where;
  const [body, strangers] = [{ where: conditions, ...(asked.rate ? { rate: Number(asked.rate) } : {}) }, new Set()];
  await performAll("Redriven", "/messages/redrive", name, body, strangers);
  if (strangers.size && await askStrangers(name, [...strangers])) await performAll("Redriven", "/messages/redrive", name, { ...body, anywhere: true });
}

// A client that may publish to a queue of dead letters can write any origin into them.
export const askStrangers = (name, strangers) => ask("Redrive",
  `Some letters came from queues that do not send their dead letters to ${shown(name)}: ${strangers.map(shown).join(", ")}. Move them there anyway?`,
  { go: "Move them", destroys: true });

export function dead(main) {
  const list = h("div", { id: "dead" });
  main.replaceChildren(h("h1", {}, "Dead letters"), list);
  subscribe({ limit: 500 }, (seen) => {
    const letters = seen.queues.filter((queue) => queue.name.endsWith(".dead"));
    put(list, table("Dead-letter queues whose name ends with .dead; others are among the queues", [
      { name: "Queue", kind: "text", cell: (queue) => linkTo(queue.name) },
      { name: "Letters", kind: "number", cell: (queue) => count(queue.ready + queue.delayed) },
      { name: "Oldest", kind: "number", cell: (queue) => age(queue, seen.at_ms) },
      { name: "", kind: "doing", cell: (queue) => h("button", { class: "small", disabled: !queue.ready, onclick: () => redrive(queue.name), "aria-label": `Redrive ${shown(queue.name)}` }, "Redrive") },
    ], letters, "No dead letters."));
  });
}
