// The page of workers: the programs that are connected to this node, what they can do, and what they are busy with.

import { call, perform } from "./api.js";
import { ask, cards, count, h, linkTo, span, table } from "./dom.js";
import { subscribe } from "./live.js";
import { again, put } from "./put.js";

const WORKERS_MAX = 500;
const BUSY_SHOWN = 3; // messages of one worker; a fold has the others

const doesWork = (worker) => worker.tasks.length || worker.queues.length || worker.leased;

const ago = (since, now) => (since ? span(Math.max(1, (now - new Date(since)) / 1000)) : "?");

const soft = (...parts) => h("small", { class: "soft" }, ...parts);

const lines = (parts) => parts.map((part) => h("div", {}, part));

// Who a program is: its own name, and where it runs; without them, its address.
function whoIs(worker) {
  const versions = Object.entries(worker.versions ?? {}).map(([name, version]) => `${name} ${version}`).join(", ");
  const where = [worker.host, worker.pid === null ? null : `process ${worker.pid}`].filter(Boolean).join(", ");
  return lines([h("strong", {}, worker.name ?? worker.address), soft(where || (worker.name ? worker.address : `a client that does not say who it is (${worker.door})`)),
    versions ? soft(versions) : ""]);
}

// On a phone each row of these tables is laid out in lines.
function inLines(made) {
  made.querySelector("table").className = "stacked";
  return made;
}

const listed = (names, link) => names.flatMap((name, place) => (place ? [", ", link(name)] : [link(name)]));

function serves(worker) {
  const tasks = worker.tasks.filter((name) => !worker.queues.includes(name));
  return lines([h("span", {}, listed(worker.queues, linkTo)), tasks.length ? soft("tasks: ", tasks.join(", ")) : ""]);
}

const messageOf = ({ queue, uid }) => h("a", { href: `#/message/${encodeURIComponent(queue)}/${encodeURIComponent(uid)}` }, uid);

function busyWith(worker, now, isComplete) {
  if (!worker.leased) return h("span", { class: "soft" }, isComplete ? "nothing" : "not known");
  const rows = worker.busy.map((one) => h("span", {}, messageOf(one), " of ", linkTo(one.queue), soft(` for ${ago(one.since, now)}`)));
  const more = worker.leased - BUSY_SHOWN;
  return lines([...rows.slice(0, BUSY_SHOWN), more > 0 ? soft(`and ${count(more)} more`) : ""]);
}

function load(worker) {
  if (!worker.concurrency) return count(worker.leased);
  const busy = Math.min(worker.leased, worker.concurrency);
  const ahead = worker.leased - busy;
  return [h("span", { class: busy === worker.concurrency ? "warn" : null }, `${count(busy)} of ${count(worker.concurrency)}`), ahead ? soft(` + ${count(ahead)} ahead`) : ""];
}

export function workers(main) {
  const summary = h("div", {});
  const list = h("div", { id: "workers" });
  const others = h("div", { id: "others" });
  const title = h("summary", {});
  const fold = h("details", { class: "fold" }, title, others);
  const refresh = async () => {
    try {
      const { workers: found, total, is_complete: isComplete } = await call("GET", "/workers", { limit: WORKERS_MAX });
      const now = Date.now();
      const rows = found.map((worker) => ({ id: worker.number, worker }));
      const atWork = rows.filter(({ worker }) => doesWork(worker));
      const rest = rows.filter(({ worker }) => !doesWork(worker));
      const places = atWork.reduce((sum, { worker }) => sum + (worker.concurrency ?? 0), 0);
      const close = { name: "", kind: "doing", cell: ({ worker }) => h("button", { class: "small destroys", "aria-label": `Close connection ${worker.number}`, onclick: async () => {
        if (await ask("Close", `Close the connection of ${worker.name ?? worker.address} (${worker.address})? Its client connects again unless it was ended.`, { go: "Close", destroys: true })) {
          await perform("Connection closed.", "DELETE", "/connection", { id: worker.number });
          refresh();
        }
      } }, "Close") };
      const since = { name: "Connected for", kind: "number", optional: true, cell: ({ worker }) => ago(worker.since, now) };
      put(summary, cards([["Workers", count(atWork.length)], ["Messages with them", count(atWork.reduce((sum, { worker }) => sum + worker.leased, 0)), isComplete ? "" : "or more: not all were counted"],
        ["At once, at most", places ? count(places) : "?"], ["Connections", count(total)], ["Only publish", count(total - atWork.length), rest.length < total - atWork.length ? "or are not shown" : ""]]));
      put(list, inLines(table("Programs that subscribe or fetch", [
        { name: "Worker", kind: "text", cell: ({ worker }) => whoIs(worker) },
        { name: "Serves", kind: "text", cell: ({ worker }) => serves(worker) },
        { name: "At work", kind: "number", cell: ({ worker }) => load(worker) },
        { name: "Busy with", kind: "text", cell: ({ worker }) => busyWith(worker, now, isComplete) },
        since, close,
      ], atWork, "No worker is connected. Start one with: wakeq run MODULE:WORKER")));
      title.replaceChildren(`Connections that only publish or look: ${count(rest.length)}`);
      fold.hidden = rest.length === 0;
      put(others, inLines(table("Connections", [
        { name: "Program", kind: "text", cell: ({ worker }) => whoIs(worker) },
        { name: "From", kind: "text", cell: ({ worker }) => worker.address },
        { name: "Door", kind: "narrow", optional: true, cell: ({ worker }) => worker.door },
        since, close,
      ], rest)));
    } catch (error) {
      put(list, h("p", { class: "bad" }, error.message));
    }
  };
  main.replaceChildren(h("div", { class: "heading" }, h("h1", {}, "Workers"), h("div", { class: "tools" }, h("button", { onclick: refresh }, "Refresh"))), summary, list, fold);
  subscribe({ limit: 1 }, again(list, refresh), { node: true });
  refresh();
}
