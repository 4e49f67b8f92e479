// The page of one queue: statistics, operations, messages by state.

import { call, perform, performAll } from "./api.js";
import { legend, recent, spark } from "./chart.js";
import { ask, bytes, cards, count, h, moment, rate, say, shown, span, table, tell } from "./dom.js";
import { seriesOf, subscribe } from "./live.js";
import { again, put } from "./put.js";
import { askStrangers, redrive } from "./queues.js";

const STATES = [["ready", "Ready"], ["delayed", "Delayed"], ["leased", "Leased"], ["any", "All"]];
const FOREVER_MS = 1e15;

export function queue(main, name) {
  const summary = h("div", {});
  const tools = h("div", { class: "tools" });
  const list = h("div", { id: "messages" });
  const tabs = h("div", { class: "tools", role: "group", "aria-label": "State of the messages" });
  let [state, paused] = ["ready", null];

  const refresh = async () => {
    const asked = state;
    try {
      const { messages } = await call("GET", "/messages", { queue: name, state, count: 50 });
      if (state === asked) put(list, messageTable(name, messages, refresh));
    } catch (error) {
      if (state === asked) put(list, h("p", { class: "bad" }, error.message));
    }
  };
  const chosen = (which) => {
    state = which;
    put(tabs, ...STATES.map(([one, label]) => h("button", { "aria-pressed": String(one === state), onclick: () => chosen(one) }, label)),
      h("button", { onclick: refresh }, "Refresh"));
    refresh();
  };
  main.replaceChildren(h("h1", {}, `Queue ${shown(name)}`), summary, tools, h("h2", {}, "Messages"), tabs, list);
  tools.replaceChildren(...actions(name, false, refresh));
  chosen("ready");
  const renew = again(list, refresh);
  subscribe({ queue: name, limit: 1, prefix: name }, (seen) => {
    const found = seen.queues.find((one) => one.name === name);
    if (!found) return put(summary, h("p", { class: "soft" }, seen.error || "There is no such queue."));
    put(summary, figures(found, seen.at_ms));
    renew();
    if (paused !== found.paused_until_ms > 0) put(tools, ...actions(name, (paused = found.paused_until_ms > 0), refresh));
    return undefined;
  });
}

function figures(found, at) {
  const series = seriesOf(found.name);
  const until = found.paused_until_ms > FOREVER_MS ? "until it is resumed" : `until ${moment(found.paused_until_ms)}`;
  return h("div", {},
    found.paused_until_ms ? h("p", { class: "warn" }, `Paused ${until}.`) : null,
    cards([
      ["Ready", count(found.ready)], ["Delayed", count(found.delayed)], ["Leased", count(found.leased)],
      ["Published", rate(recent(series.ins)), "/s"], ["Acknowledged", rate(recent(series.outs)), "/s"],
      ["Oldest ready", found.ready && found.oldest_ready_ms ? span((at - found.oldest_ready_ms) / 1000) : "–"],
      ["Size", bytes(found.bytes)], ["Subscribers", count(found.subscribers)], ["Sleepers", count(found.sleepers)],
      ["Released", count(found.released)], ["Dead letters", count(found.dead)], ["Published in total", count(found.published)],
    ]),
    h("figure", { class: "chart" }, h("figcaption", {}, `The last minute, up to ${rate(Math.max(0, ...series.ins, ...series.outs))} /s`, legend()), spark(series, "large")));
}

function actions(name, paused, refresh) {
  const after = async (doing) => (await doing) && refresh();
  const query = { queue: name };
  return [
    paused
      ? h("button", { onclick: () => after(perform("The queue is resumed.", "POST", "/queue/resume", query)) }, "Resume")
      : h("button", { onclick: async () => {
        const asked = await ask("Pause", `Pause deliveries from ${shown(name)}?`, { fields: [{ name: "for", label: "Seconds (empty: until the queue is resumed)", type: "number" }], go: "Pause" });
        if (asked) after(perform("The queue is paused.", "POST", "/queue/pause", query, asked.for ? { for_s: Number(asked.for) } : {}));
      } }, "Pause"),
    name.endsWith(".dead") ? h("button", { onclick: async () => { await redrive(name); refresh(); } }, "Redrive") : null,
    h("button", { onclick: async () => {
      const asked = await ask("Move", `Move all ready and delayed messages of ${shown(name)} to another queue?`, { fields: [{ name: "to", label: "To queue", required: true }], go: "Move" });
      if (asked) after(performAll("Moved", "/messages/move", name, { to: asked.to }));
    } }, "Move all"),
    h("button", { class: "destroys", onclick: async () => {
      const asked = await ask("Purge", `Delete every message of ${shown(name)}? This cannot be undone.`, { go: "Delete", destroys: true });
      if (asked) after(performAll("Deleted", "/messages/purge", name, {}));
    } }, "Purge"),
    h("button", { onclick: () => showPolicies(name) }, "Policies"),
  ].filter(Boolean);
}

async function showPolicies(name) {
  try {
    const { policies } = await call("GET", "/queue", { queue: name });
    tell(`Policies of ${shown(name)}`, h("pre", {}, JSON.stringify(policies, null, 2)));
  } catch (error) {
    say(error.message, true);
  }
}

function messageTable(name, messages, refresh) {
  const error = (message) => message.error || message.headers["wakeq-error"] || "";
  const when = (message) => (message.state === "leased" ? `worker ${message.worker}, until ${moment(message.until_ms)}` : message.state === "delayed" ? `due ${moment(message.due_ms)}` : "");
  return table(`${messages.length} messages in order of delivery; at most 50 are shown`, [
    { name: "Message", kind: "narrow", cell: (message) => h("code", {}, message.uid) },
    { name: "State", cell: (message) => [message.state, h("div", { class: "soft" }, when(message))] },
    { name: "Priority", kind: "number", optional: true, cell: (message) => count(message.priority) },
    { name: "Failures", kind: "number", optional: true, cell: (message) => count(message.failures) },
    { name: "Error", kind: "text", optional: true, cell: (message) => h("span", { class: "bad" }, error(message)) },
    { name: "Body", kind: "body", cell: (message) => h("div", { class: "clamped" }, message.body.slice(0, 200)) },
    { name: "", kind: "doing", cell: (message) => h("div", { class: "tools" }, buttons(name, message, refresh)) },
  ], messages, "No messages in this state.");
}

function buttons(name, message, refresh) {
  const { uid } = message;
  const button = (text, onclick, more = {}) => h("button", { class: "small", "aria-label": `${text} ${uid}`, onclick, ...more }, text);
  const after = async (doing) => (await doing) !== false && refresh();
  const pick = (path, what, body = {}) => after(performAll(what, path, name, { uids: [uid], ...body }));
  const found = [button("Show", () => tell(uid, h("pre", {}, JSON.stringify(message, null, 2)))), button("Why?", () => why(name, uid))];
  if (message.state === "delayed") found.push(button("Make due", () => pick("/messages/requeue", "Made due")));
  if (message.state === "leased") {
    found.push(button("Release", () => after(perform((answer) => `Released: ${answer.done}`, "POST", "/leases/release", { queue: name }, { uids: [uid] }))));
    return found;
  }
  const origin = message.headers["wakeq-origin"];
  if (origin !== undefined) found.push(button("Redrive", async () => {
    const strangers = new Set();
    await after(performAll("Redriven", "/messages/redrive", name, { where: [`uid=${uid}`] }, strangers));
    if (strangers.size && await askStrangers(name, [origin])) pick("/messages/redrive", "Redriven", { to: origin });
  }));
  found.push(button("Delete", async () => {
    if (await ask("Delete", `Delete ${uid}? This cannot be undone.`, { go: "Delete", destroys: true })) pick("/messages/purge", "Deleted");
  }, { class: "small destroys" }));
  return found;
}

async function why(name, uid) {
  try {
    const { causes } = await call("GET", "/messages/why", { queue: name, uid });
    tell(`Why is ${uid} not being processed?`, h("ul", {}, causes.map((cause) => h("li", {}, h("strong", {}, cause.code), `: ${cause.text}`))));
  } catch (error) {
    say(error.message, true);
  }
}
