// The page of one queue: figures, operations, and its messages.

import { call, perform, performAll } from "./api.js";
import { charts } from "./chart.js";
import { age, ask, bytes, cards, count, h, moment, rate, say, shown, tell } from "./dom.js";
import { recent, seriesOf, subscribe } from "./live.js";
import { messages } from "./messages.js";
import { put } from "./put.js";
import { redrive } from "./redrive.js";
import { isDeadLetter, statusOf } from "./status.js";

const FOREVER_MS = 1e15;

export function queue(main, ...parts) {
  // Whoever types an address by hand may leave the slashes of a name as they are.
  const name = parts.join("/");
  const summary = h("div", {});
  const tools = h("div", { class: "tools" });
  const list = h("section", { "aria-label": "Messages" });
  const drawn = h("section", { "aria-label": "Charts" });
  let paused = null;

  main.replaceChildren(h("div", { class: "heading" }, h("h1", {}, `Queue ${shown(name)}`), tools), summary, drawn, list);
  const stop = charts(drawn, name);
  const { refresh, renew } = messages(list, name);
  tools.replaceChildren(...actions(name, { paused: false, isDead: isDeadLetter({ name }) }, refresh));
  subscribe({ queue: name, limit: 1, prefix: name }, (seen) => {
    const found = seen.queues.find((one) => one.name === name);
    drawn.hidden = !found;
    if (!found) return put(summary, h("p", { class: "soft" }, "There is no such queue."));
    put(summary, figures(found, seen.at_ms));
    renew();
    if (paused !== found.paused_until_ms > 0) {
      paused = found.paused_until_ms > 0;
      put(tools, ...actions(name, { paused, isDead: isDeadLetter(found) }, refresh));
    }
    return undefined;
  });
  return stop;
}

function figures(found, at) {
  const series = seriesOf(found.name);
  const until = found.paused_until_ms > FOREVER_MS ? "until it is resumed" : `until ${moment(found.paused_until_ms)}`;
  const [word, colour, explanation] = statusOf(found);
  const about = found.paused_until_ms ? `Paused ${until}.` : explanation;
  return h("div", {},
    h("p", { class: "status" }, h("span", { class: `badge ${colour}` }, word), " ", h("span", { class: "soft" }, about)),
    cards([
      ["Ready", count(found.ready)], ["Delayed", count(found.delayed)], ["Leased", count(found.leased)],
      ["Oldest ready", age(found, at)], ["Size", bytes(found.bytes)], ["Subscribers", count(found.subscribers), "", found.sleepers ? `${count(found.sleepers)} asleep` : ""],
      ["Published", rate(recent(series.ins)), "/s", `${count(found.published)} in total`], ["Acknowledged", rate(recent(series.outs)), "/s", `${count(found.acked)} in total`],
      ["Released", count(found.released), "", "in total"], ["Dead-lettered", count(found.dead), "", "in total"], ["Expired", count(found.expired), "", "in total"], ["Moved away", count(found.moved), "", "in total"],
    ]));
}

function actions(name, { paused, isDead }, refresh) {
  const after = async (doing) => (await doing) && refresh();
  const query = { queue: name };
  return [
    paused
      ? h("button", { onclick: () => after(perform("The queue is resumed.", "POST", "/queue/resume", query)) }, "Resume")
      : h("button", { onclick: async () => {
        const asked = await ask("Pause", `Pause deliveries from ${shown(name)}?`, { fields: [{ name: "for", label: "Seconds (empty: until the queue is resumed)", type: "number" }], go: "Pause" });
        if (asked) after(perform("The queue is paused.", "POST", "/queue/pause", query, asked.for ? { for_s: Number(asked.for) } : {}));
      } }, "Pause"),
    isDead ? h("button", { onclick: async () => { await redrive(name); refresh(); } }, "Redrive") : null,
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
