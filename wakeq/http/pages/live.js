// What is seen of the broker now, and what was seen in the last minute.

import { watch } from "./api.js";
import { LOOKS } from "./chart.js";

const AGAIN_MS = 1000;

const NOTHING = { ins: [], outs: [] };

export const live = { look: null, rates: new Map(), totals: {} };

// What came in and what was done a second, of a queue, look by look.
export const seriesOf = (name) => live.rates.get(name) ?? NOTHING;

// Whether the node's own figures are told to whoever has this token.
export const shows = (figures) => Object.keys(figures).length > 0;

let [before, stop, wanted, show] = [null, null, {}, () => {}];

const perSecond = (now, then, seconds) => (seconds > 0 ? Math.max(0, now - then) / seconds : 0);

function remember(look) {
  live.look = look;
  if (look.error) { // its totals are none, and no count grows from there
    [before, live.rates, live.totals] = [null, new Map(), {}];
    return;
  }
  const seconds = before ? (look.at_ms - before.at_ms) / 1000 : 0;
  const known = new Map((before?.queues ?? []).map((queue) => [queue.name, queue]));
  const seen = new Map();
  for (const queue of look.queues) {
    const then = known.get(queue.name);
    const same = then && then.queue_id === queue.queue_id;
    const { ins, outs } = seriesOf(queue.name);
    seen.set(queue.name, {
      ins: [...ins, same ? perSecond(queue.published, then.published, seconds) : 0].slice(-LOOKS),
      outs: [...outs, same ? perSecond(queue.acked, then.acked, seconds) : 0].slice(-LOOKS),
    });
  }
  live.rates = seen;
  live.totals = Object.fromEntries(Object.entries(look.totals).map(([name, value]) =>
    [name, [...(live.totals[name] ?? []), before ? perSecond(value, before.totals[name], seconds) : 0].slice(-LOOKS)]));
  before = look;
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
