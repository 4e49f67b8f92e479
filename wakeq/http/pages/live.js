// The state of the broker now, and its rates over the last minute.

import { watch } from "./api.js";
import { READINGS } from "./chart.js";

const RETRY_MS = 1000;

const NOTHING = { ins: [], outs: [] };

export const live = { reading: null, rates: new Map(), totals: {} };

// The messages of a queue published and acknowledged per second, reading by reading.
export const seriesOf = (name) => live.rates.get(name) ?? NOTHING;

// Whether this token may see the metrics of the node.
export const shows = (figures) => Object.keys(figures).length > 0;

let [before, stop, wanted, show] = [null, null, {}, () => {}];

const perSecond = (now, then, seconds) => (seconds > 0 ? Math.max(0, now - then) / seconds : 0);

function remember(reading) {
  live.reading = reading;
  if (reading.error) {
    // A node that follows has no totals, and no count continues from there.
    [before, live.rates, live.totals] = [null, new Map(), {}];
    return;
  }
  const seconds = before ? (reading.at_ms - before.at_ms) / 1000 : 0;
  const known = new Map((before?.queues ?? []).map((queue) => [queue.name, queue]));
  const seen = new Map();
  for (const queue of reading.queues) {
    const then = known.get(queue.name);
    const same = then && then.queue_id === queue.queue_id;
    const { ins, outs } = seriesOf(queue.name);
    seen.set(queue.name, {
      ins: [...ins, same ? perSecond(queue.published, then.published, seconds) : 0].slice(-READINGS),
      outs: [...outs, same ? perSecond(queue.acked, then.acked, seconds) : 0].slice(-READINGS),
    });
  }
  live.rates = seen;
  live.totals = Object.fromEntries(Object.entries(reading.totals).map(([name, value]) =>
    [name, [...(live.totals[name] ?? []), before ? perSecond(value, before.totals[name], seconds) : 0].slice(-READINGS)]));
  before = reading;
}

function status(text, kind) {
  const link = document.getElementById("link");
  if (link.textContent !== text) link.textContent = text;
  link.className = `link ${kind}`;
}

async function follow(signal) {
  while (!signal.aborted) {
    try {
      await watch(wanted, signal, (reading) => {
        remember(reading);
        status(reading.error ? "this node follows" : "live", reading.error ? "lost" : "live");
        show(reading);
      });
    } catch (error) {
      if (signal.aborted) return;
    }
    if (signal.aborted) return;
    status("no connection to the broker; trying again", "lost");
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

// Watch other queues from now on, and show each reading with `each`.
export function subscribe(query, each) {
  show = each;
  if (stop && JSON.stringify(query) === JSON.stringify(wanted)) {
    if (live.reading) each(live.reading);
    return;
  }
  wanted = query;
  stop?.abort();
  stop = new AbortController();
  follow(stop.signal);
}
