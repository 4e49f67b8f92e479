// The messages of a queue, by state, with the operations on each.

import { call, perform, performAll } from "./api.js";
import { ask, count, h, moment, say, table, tell } from "./dom.js";
import { again, put } from "./put.js";
import { askStrangers } from "./redrive.js";

const STATES = [["ready", "Ready"], ["delayed", "Delayed"], ["leased", "Leased"], ["any", "All"]];

// Show the messages of a queue in `place`.  Returns `refresh`, which reads them again, and `renew`, which does so at most
// every two seconds and never while somebody is about to press a row.
export function messages(place, name) {
  const list = h("div", { id: "messages" });
  const tabs = h("div", { class: "tools", role: "group", "aria-label": "State of the messages" });
  let state = "ready";

  const refresh = async () => {
    const asked = state;
    try {
      const found = await call("GET", "/messages", { queue: name, state, count: 50 });
      if (state === asked) put(list, messageTable(name, found.messages, refresh));
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
  place.replaceChildren(h("h2", {}, "Messages"), tabs, list);
  chosen("ready");
  return { refresh, renew: again(list, refresh) };
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
