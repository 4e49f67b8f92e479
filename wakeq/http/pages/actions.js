// What an operator does to messages: to one, to those that were chosen, or to all that match a condition.

import { call, perform, performAll } from "./api.js";
import { ask, count, h, say, shown, tell } from "./dom.js";

// The broker takes so many uids in one call.
const UIDS_MAX = 1000;
const ORIGIN = "wakeq-origin";

// A choice is {messages} or {where, about}: conditions, and how these messages are called in a question.
const many = (choice) => choice.about ?? (choice.messages.length === 1 ? choice.messages[0].uid : `${count(choice.messages.length)} messages`);

async function apply(what, path, name, choice, more = {}) {
  if (choice.where) return performAll(what, path, name, { ...more, where: choice.where });
  let done = 0;
  for (let start = 0; start < choice.messages.length; start += UIDS_MAX) {
    const uids = choice.messages.slice(start, start + UIDS_MAX).map((message) => message.uid);
    done += await performAll(what, path, name, { ...more, uids });
  }
  return done;
}

export const makeDue = (name, choice) => apply("Made due", "/messages/requeue", name, choice);

export const release = (name, { messages }) => perform((answer) => `Released: ${answer.done}`, "POST", "/leases/release",
  { queue: name }, { uids: messages.slice(0, UIDS_MAX).map((message) => message.uid) });

export async function remove(name, choice) {
  const asked = await ask("Delete", `Delete ${many(choice)}? This cannot be undone.`, { go: "Delete", destroys: true });
  return asked ? apply("Deleted", "/messages/purge", name, choice) : false;
}

export async function moveTo(name, choice) {
  const asked = await ask("Move", `Move ${many(choice)} to another queue?`, { fields: [{ name: "to", label: "To queue", required: true }], go: "Move" });
  return asked ? apply("Moved", "/messages/move", name, choice, { to: asked.to }) : false;
}

// Each goes to the queue that it names as its origin; the question says which those are, since a publisher can write any.
export async function redriveThese(name, { messages }) {
  const byOrigin = new Map();
  for (const message of messages) {
    const origin = message.headers[ORIGIN];
    if (origin !== undefined) byOrigin.set(origin, [...(byOrigin.get(origin) ?? []), message]);
  }
  const targets = [...byOrigin].map(([origin, mine]) => `${shown(origin)} (${count(mine.length)})`).join(", ");
  if (!await ask("Redrive", `Move ${many({ messages: [...byOrigin.values()].flat() })} back to ${targets}?`, { go: "Redrive" })) return false;
  let done = 0;
  for (const [to, mine] of byOrigin) done += await apply("Redriven", "/messages/redrive", name, { messages: mine }, { to });
  return done;
}

export async function why(name, uid) {
  try {
    const { causes } = await call("GET", "/messages/why", { queue: name, uid });
    tell(`Why is ${uid} not being processed?`, causesOf(causes));
  } catch (error) {
    say(error.message, true);
  }
}

export const causesOf = (causes) => h("ul", { class: "causes" }, causes.map((cause) => h("li", {}, h("strong", {}, cause.code), `: ${cause.text}`)));

// The actions that can be taken on messages: those that make sense for at least one of them.
export function actionsOn(name, messages, after) {
  const only = (test) => messages.filter(test);
  const delayed = only((message) => message.state === "delayed");
  const leased = only((message) => message.state === "leased");
  const letters = only((message) => message.state !== "leased" && message.headers[ORIGIN] !== undefined);
  const waiting = only((message) => message.state === "ready" || message.state === "delayed");
  const action = (text, chosen, doing, more = {}) => (chosen.length
    ? { text, ...more, go: async () => { if ((await doing(name, { messages: chosen })) !== false) after(); } } : null);
  return [
    action("Make due", delayed, makeDue),
    action("Release", leased, release),
    action("Redrive", letters, redriveThese),
    action("Move", waiting, moveTo),
    action("Delete", waiting, remove, { destroys: true }),
  ].filter(Boolean);
}
