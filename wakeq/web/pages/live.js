// What is seen of the broker now, and what was seen in the last minute.

import { watch } from "./api.js";

const LOOKS = 120;
const AGAIN_MS = 1000;

export const live = { look: null, rates: new Map(), totals: null };

// Whether the node's own figures are told to whoever has this token.
export const shows = (figures) => Object.keys(figures).length > 0;

let [before, stop, wanted, show] = [null, null, {}, () => {}];

const perSecond = (now, then, seconds) => (seconds > 0 ? Math.max(0, now - then) / seconds : 0);

function remember(look) {
  const seconds = before ? (look.at_ms - before.at_ms) / 1000 : 0;
  const known = new Map((before?.queues ?? []).map((queue) => [queue.name, queue]));
  const seen = new Map();
  for (const queue of look.queues) {
    const then = known.get(queue.name);
    const same = then && then.queue_id === queue.queue_id;
    const series = live.rates.get(queue.name) ?? { ins: Array(LOOKS).fill(0), outs: Array(LOOKS).fill(0) };
    series.ins = [...series.ins, same ? perSecond(queue.published, then.published, seconds) : 0].slice(-LOOKS);
    series.outs = [...series.outs, same ? perSecond(queue.acked, then.acked, seconds) : 0].slice(-LOOKS);
    seen.set(queue.name, series);
  }
  live.rates = seen;
  live.totals = Object.fromEntries(Object.entries(look.totals).map(([name, value]) =>
    [name, before ? perSecond(value, before.totals[name], seconds) : 0]));
  [before, live.look] = [look, look];
}

function status(text, kind) {
  const link = document.getElementById("link");
  if (link.textContent !== text) link.textContent = text;
  link.className = `link ${kind}`;
}

async function follow(signal) {
  while (!signal.aborted) {
    try {
      await watch(wanted, signal, (look) => {
        remember(look);
        status(look.error ? "this node follows" : "live", look.error ? "lost" : "live");
        show(look);
      });
    } catch (error) {
      if (signal.aborted) return;
    }
    if (signal.aborted) return;
    status("no connection to the broker; trying again", "lost");
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

// Look at other queues from now on, and show each look with `each`.
export function look(query, each) {
  show = each;
  if (stop && JSON.stringify(query) === JSON.stringify(wanted)) {
    if (live.look) each(live.look);
    return;
  }
  wanted = query;
  stop?.abort();
  stop = new AbortController();
  follow(stop.signal);
}
