// Moves dead letters back to the queues that they came from, after asking.

import { performAll } from "./api.js";
import { ask, shown } from "./dom.js";

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
