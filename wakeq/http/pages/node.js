// The pages of workers, cluster and slow spots.

import { call, perform } from "./api.js";
import { ask, bytes, cards, count, h, span, table } from "./dom.js";
import { subscribe, shows } from "./live.js";
import { again, put } from "./put.js";
import { linkTo } from "./queues.js";

const HIDDEN = "Only a token with a right on all queues can see the node.";

export function workers(main) {
  const list = h("div", { id: "workers" });
  const refresh = async () => {
    try {
      const { connections, total } = await call("GET", "/connections", { limit: 200 });
      put(list, table(`${count(connections.length)} of ${count(total)} connections`, [
        { name: "Number", kind: "number narrow", optional: true, cell: (row) => row.id },
        { name: "Door", kind: "narrow", optional: true, cell: (row) => row.door },
        { name: "From", kind: "text", cell: (row) => row.peer },
        { name: "Unanswered", kind: "number", optional: true, cell: (row) => count(row.in_flight) },
        { name: "Subscribed to", kind: "text", cell: (row) => row.queues.flatMap((name, place) => (place ? [", ", linkTo(name)] : [linkTo(name)])) },
        { name: "", kind: "doing", cell: (row) => h("button", { class: "small destroys", "aria-label": `Close connection ${row.id}`, onclick: async () => {
          if (await ask("Close", `Close connection ${row.id} from ${row.peer}?`, { go: "Close", destroys: true })) {
            await perform("Connection closed.", "DELETE", "/connection", { id: row.id });
            refresh();
          }
        } }, "Close") },
      ], connections, "No connections."));
    } catch (error) {
      put(list, h("p", { class: "bad" }, error.message));
    }
  };
  main.replaceChildren(h("h1", {}, "Workers"), h("div", { class: "tools" }, h("button", { onclick: refresh }, "Refresh")), list);
  subscribe({ limit: 1 }, again(list, refresh));
  refresh();
}

export function cluster(main) {
  const content = h("div", { id: "cluster" });
  main.replaceChildren(h("h1", {}, "Cluster"), content);
  subscribe({ limit: 1 }, ({ cluster: facts, error }) => {
    if (!facts.members) return put(content, h("p", { class: "bad" }, error || HIDDEN));
    put(content,
      cards([["This node", `${facts.node}`, facts.role], ["Leader", facts.leader ?? "none"], ["Term", count(facts.term)],
        ["Committed", count(facts.committed)], ["Serves", facts.serves ? h("span", { class: "good" }, "yes") : h("span", { class: "bad" }, "no")]]),
      table("Members; only the leader knows how far behind the others are", [
        { name: "Node", kind: "number narrow", cell: (row) => row.node },
        { name: "Address", kind: "text", cell: (row) => row.address || "–" },
        { name: "Votes", cell: (row) => (row.votes ? "yes" : "not yet") },
        { name: "Connected", cell: (row) => h("span", { class: row.is_connected ? "good" : "bad" }, row.is_connected ? "yes" : "no") },
        { name: "Behind", kind: "number", cell: (row) => (row.behind_bytes === null ? "?" : bytes(row.behind_bytes)) },
      ], facts.members));
    return undefined;
  });
}

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
      ], retried, "No released deliveries."));
  });
}
