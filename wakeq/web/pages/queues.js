// The page of all queues, and that of dead letters.

import { performAll } from "./api.js";
import { ask, bytes, cards, count, h, rate, shown, span, spark, table } from "./dom.js";
import { live, look, shows } from "./live.js";

export const linkTo = (name) => h("a", { href: `#/queue/${encodeURIComponent(name)}` }, shown(name));

const age = (queue, at) => (queue.ready && queue.oldest_ready_ms ? span((at - queue.oldest_ready_ms) / 1000) : "–");
const last = (name, which) => rate(live.rates.get(name)?.[which].at(-1) ?? 0);

function columns(at) {
  return [
    { name: "Queue", kind: "text", cell: (queue) => [linkTo(queue.name), queue.paused_until_ms ? h("span", { class: "badge paused" }, "paused") : null] .flatMap((part) => (part ? [part, " "] : [])) },
    { name: "Last minute", cell: (queue) => spark(live.rates.get(queue.name)?.ins ?? [], live.rates.get(queue.name)?.outs ?? []) },
    { name: "Ready", kind: "number", cell: (queue) => count(queue.ready) },
    { name: "Delayed", kind: "number", cell: (queue) => count(queue.delayed) },
    { name: "With workers", kind: "number", cell: (queue) => count(queue.leased) },
    { name: "In /s", kind: "number", optional: true, cell: (queue) => last(queue.name, "ins") },
    { name: "Done /s", kind: "number", optional: true, cell: (queue) => last(queue.name, "outs") },
    { name: "Oldest", kind: "number", cell: (queue) => age(queue, at) },
    { name: "Workers", kind: "number", optional: true, cell: (queue) => count(queue.subscribers) },
    { name: "Dead", kind: "number", optional: true, cell: (queue) => count(queue.dead) },
  ];
}

export function queues(main) {
  const summary = h("div", {});
  const list = h("div", { id: "queues" });
  const filter = h("input", { type: "search", "aria-label": "Only queues whose name begins with", placeholder: "Name begins with …" });
  main.replaceChildren(h("h1", {}, "Queues"), summary, h("div", { class: "tools" }, filter), list);
  const draw = (seen) => {
    const { totals, figures } = seen;
    const now = live.totals ?? {};
    summary.replaceChildren(cards([
      ["Ready", count(totals.ready)], ["Delayed", count(totals.delayed)], ["With workers", count(totals.leased)],
      ["Published", rate(now.published ?? 0), "/s"], ["Done", rate(now.acked ?? 0), "/s"],
      ["Came back", rate(now.released ?? 0), "/s"], ["Dead letters", count(totals.dead)],
      ["Held", bytes(totals.bytes)], ...(shows(figures) ? [["Connections", count(connections(figures))]] : [])]));
    const caption = seen.error || `${count(seen.queues.length)} of ${count(seen.queues_total)} queues, the fullest first; blue is published, green is done`;
    list.replaceChildren(table(caption, columns(seen.at_ms), seen.queues, "No queues. Publish something, and it shows up here."));
  };
  const start = () => look({ prefix: filter.value }, draw);
  filter.addEventListener("input", start);
  start();
}

const connections = (figures) => Object.entries(figures).filter(([name]) => name.startsWith("wakeq_connections:")).reduce((sum, [, value]) => sum + value, 0);

export async function redrive(name, where = []) {
  const asked = await ask("Redrive", `Bring the dead letters of ${shown(name)} back, each to the queue that it came from?`, {
    fields: [{ name: "error", label: "Only those whose error contains (empty: all)" }, { name: "rate", label: "At most so many a second (empty: at once)", type: "number" }],
    go: "Redrive" });
  if (!asked) return;
  const conditions = asked.error ? [...where, `header.wakeq-error~${asked.error}`] : where;
  await performAll("Redriven", "/messages/redrive", name, { where: conditions, ...(asked.rate ? { rate: Number(asked.rate) } : {}) });
}

export function dead(main) {
  const list = h("div", { id: "dead" });
  main.replaceChildren(h("h1", {}, "Dead letters"), list);
  look({ limit: 500 }, (seen) => {
    const letters = seen.queues.filter((queue) => queue.name.endsWith(".dead"));
    list.replaceChildren(table("Queues of dead letters; one under another name is found among the queues", [
      { name: "Queue", kind: "text", cell: (queue) => linkTo(queue.name) },
      { name: "Letters", kind: "number", cell: (queue) => count(queue.ready + queue.delayed) },
      { name: "Oldest", kind: "number", cell: (queue) => age(queue, seen.at_ms) },
      { name: "", cell: (queue) => h("button", { class: "small", disabled: !queue.ready, onclick: () => redrive(queue.name), "aria-label": `Redrive ${shown(queue.name)}` }, "Redrive") },
    ], letters, "No dead letters."));
  });
}
