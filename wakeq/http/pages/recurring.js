// The page of what recurs: the schedules of all workers that are connected to this node, with their next moments.

import { call } from "./api.js";
import { h, linkTo, span, table } from "./dom.js";
import { subscribe } from "./live.js";
import { again, put } from "./put.js";

const WORKERS_MAX = 1000;

// An interval in the largest unit of which it is a whole number.
function interval(seconds) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([one]) => seconds % one === 0);
  return `every ${seconds / size} ${unit}`;
}

const when = (one) => (one.cron === undefined ? interval(one.every) : one.cron);

// Schedules that several workers have are one row: the broker stores each of their moments once.
function merged(workers) {
  const rows = new Map();
  for (const worker of workers) {
    for (const one of worker.schedules) {
      const id = JSON.stringify([one.name, one.cron, one.zone, one.every]);
      const row = rows.get(id) ?? { id, one, next: null, workers: [] };
      if (one.next && (row.next === null || new Date(one.next) < row.next)) row.next = new Date(one.next);
      if (!row.workers.includes(worker)) row.workers.push(worker);
      rows.set(id, row);
    }
  }
  return [...rows.values()].sort((a, b) => (a.next ?? Infinity) - (b.next ?? Infinity));
}

function nextRun(next, now) {
  if (next === null) return h("span", { class: "soft" }, "not said");
  const left = (next - now) / 1000;
  return [h("strong", {}, left < 1 ? "now" : `in ${span(left)}`), h("div", {}, h("small", { class: "soft" }, next.toLocaleString()))];
}

const nameOf = (worker) => `${worker.name ?? worker.address}${worker.host ? ` (${worker.host}, process ${worker.pid})` : ""}`;

export function recurring(main) {
  const list = h("div", { id: "recurring" });
  const refresh = async () => {
    try {
      const { workers } = await call("GET", "/workers", { limit: WORKERS_MAX });
      const now = Date.now();
      put(list, table("Each moment is published once, however many workers have the schedule", [
        { name: "Task", kind: "text", cell: (row) => linkTo(row.one.name) },
        { name: "When", kind: "text", cell: (row) => [h("code", {}, when(row.one)), row.one.zone ? h("small", { class: "soft" }, ` ${row.one.zone}`) : ""] },
        { name: "Next run", kind: "text", cell: (row) => nextRun(row.next, now) },
        { name: "Workers", kind: "text", optional: true, cell: (row) => row.workers.map((worker) => h("div", {}, nameOf(worker))) },
      ], merged(workers), "No connected worker has a schedule. Add one with: worker.schedule(task, \"30 6 * * mon-fri\")"));
    } catch (error) {
      put(list, h("p", { class: "bad" }, error.message));
    }
  };
  main.replaceChildren(h("div", { class: "heading" }, h("h1", {}, "Recurring"), h("div", { class: "tools" }, h("button", { onclick: refresh }, "Refresh"))), list);
  subscribe({ limit: 1 }, again(list, refresh), { node: true });
  refresh();
}
