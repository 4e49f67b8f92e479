// The page of slow spots: what makes this node or a queue slow.

import { bytes, cards, count, h, linkTo, span, table } from "./dom.js";
import { HIDDEN, shows, subscribe } from "./live.js";
import { put } from "./put.js";

// The smallest bucket bound that covers this share of all values.
function quantile(figures, name, share) {
  const bounds = Object.entries(figures).filter(([key]) => key.startsWith(`${name}_le_`)).map(([key, value]) => [Number(key.slice(name.length + 4).replace("inf", "Infinity")), value]);
  bounds.sort((a, b) => a[0] - b[0]);
  const all = bounds.at(-1)?.[1] ?? 0;
  return all ? bounds.find(([, value]) => value >= share * all)[0] : 0;
}

const milliseconds = (seconds) => (seconds === Infinity ? "> 2.5 s" : seconds ? `≤ ${Number((seconds * 1000).toPrecision(3))} ms` : "–");

export function slow(main) {
  const content = h("div", { id: "slow" });
  main.replaceChildren(h("h1", {}, "Slow spots"), content);
  subscribe({ limit: 500 }, (seen) => {
    const { figures } = seen;
    const of = (name) => figures[`wakeq_${name}`] ?? 0;
    const waiting = seen.queues.filter((queue) => queue.ready && queue.oldest_ready_ms).sort((a, b) => a.oldest_ready_ms - b.oldest_ready_ms).slice(0, 10);
    const retried = seen.queues.filter((queue) => queue.released > 0).sort((a, b) => b.released / b.delivered - a.released / a.delivered).slice(0, 10);
    put(content,
      !shows(figures) ? h("p", {}, HIDDEN) : cards([
        ["Sync of the log, median", milliseconds(quantile(figures, "wakeq_log_sync_seconds", 0.5))],
        ["Sync of the log, 99 %", milliseconds(quantile(figures, "wakeq_log_sync_seconds", 0.99))],
        ["Delay of the event loop, 99 %", milliseconds(quantile(figures, "wakeq_loop_stall_seconds", 0.99))],
        ["Longest turn", `${(of("longest_turn_seconds") * 1000).toFixed(1)} ms`],
        ["Entries per sync", (of("log_group_entries_sum") / Math.max(1, of("log_group_entries_count"))).toFixed(1)],
        ["Not flushed yet", bytes(of("state_backlog_bytes"))],
        ["Log", bytes(of("log_bytes"))], ["State", bytes(of("state_file_bytes"))],
        ["Free on disk", bytes(of("disk_free_bytes"))],
        ["Publishes", of("publishes_refused") ? h("span", { class: "bad" }, "refused") : "accepted"],
        ["Memory", bytes(figures.process_resident_memory_bytes ?? 0)],
        ["Clock difference", `${of("clock_step_seconds").toFixed(1)} s`],
      ]),
      // A node that follows knows no queues, which is not the same as none that is slow.
      seen.error ? null : [
        table("Queues with the oldest ready messages", [
          { name: "Queue", kind: "text", cell: (queue) => linkTo(queue.name) },
          { name: "Oldest", kind: "number", cell: (queue) => span((seen.at_ms - queue.oldest_ready_ms) / 1000) },
          { name: "Ready", kind: "number", cell: (queue) => count(queue.ready) },
          { name: "Subscribers", kind: "number", cell: (queue) => count(queue.subscribers) },
        ], waiting, "No ready messages."),
        h("h2", {}, "Repeated work"),
        table("Queues with the largest share of released deliveries", [
          { name: "Queue", kind: "text", cell: (queue) => linkTo(queue.name) },
          { name: "Released", kind: "number", cell: (queue) => `${((100 * queue.released) / Math.max(1, queue.delivered)).toFixed(1)} %` },
          { name: "Deliveries", kind: "number", cell: (queue) => count(queue.delivered) },
          { name: "Wake-ups per delivery", kind: "number", optional: true, cell: (queue) => (queue.wakes / Math.max(1, queue.delivered)).toFixed(2) },
        ], retried, "No released deliveries.")]);
  }, { node: true });
}
