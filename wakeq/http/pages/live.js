// The state of the broker now: one stream of readings, which the page that is shown subscribes to.
// A node that does not lead knows no queues, so its zeros are never shown: a banner says where the figures are.

import { signIn, signedOut, watch } from "./api.js";
import { h } from "./dom.js";
import { put } from "./put.js";

const RETRY_MS = 1000;
export const READINGS = 120; // in the last minute
const QUEUES_MAX = 2000; // whose rates are remembered
const DELIVERED_MS = 10_000; // after a delivery, somebody is said to work
const RECENT = 6; // A rate is the mean of so many readings, because a single one jumps.
const NOTHING = { ins: [], outs: [], ready: [], isDelivered: false };

export const HIDDEN = "Only a token with a right on all queues can see the node.";

export const live = { reading: null, rates: new Map(), totals: {} };

// The messages of a queue published and acknowledged per second, reading by reading.
export const seriesOf = (name) => live.rates.get(name) ?? NOTHING;

export const recent = (values) => (values.length ? values.slice(-RECENT).reduce((sum, one) => sum + one, 0) / Math.min(RECENT, values.length) : 0);

// Whether this token may see the metrics of the node.
export const shows = (figures) => Object.keys(figures).length > 0;

// `before` is the last reading; `known` has the last counters of each queue with their moment.
let [before, known] = [null, new Map()];
// The stream: what it asks for, how it is stopped, who shows it, and whether that is about the node and not about queues.
let [wanted, stop, show, ofNode, taken] = [null, null, () => {}, false, false];

const perSecond = (now, then, seconds) => (seconds > 0 ? Math.max(0, now - then) / seconds : 0);

function remember(reading) {
  live.reading = reading;
  if (reading.error) {
    // A node that follows has no totals, and no count continues from there.
    [before, known, live.rates, live.totals] = [null, new Map(), new Map(), {}];
    return;
  }
  for (const queue of reading.queues) {
    const then = known.get(queue.name);
    const same = then && then.queue_id === queue.queue_id;
    const seconds = same ? (reading.at_ms - then.at_ms) / 1000 : 0;
    const { ins, outs, ready } = seriesOf(queue.name);
    const isDelivered = same && (queue.delivered > then.delivered || reading.at_ms < then.delivered_ms + DELIVERED_MS);
    live.rates.set(queue.name, {
      ins: [...ins, same ? perSecond(queue.published, then.published, seconds) : 0].slice(-READINGS),
      outs: [...outs, same ? perSecond(queue.acked, then.acked, seconds) : 0].slice(-READINGS),
      ready: [...(same ? ready : []), queue.ready].slice(-READINGS),
      // Whether a worker was delivered something within the last seconds.
      isDelivered,
    });
    known.delete(queue.name);
    known.set(queue.name, { queue_id: queue.queue_id, at_ms: reading.at_ms, published: queue.published, acked: queue.acked,
      delivered: queue.delivered, delivered_ms: same && queue.delivered > then.delivered ? reading.at_ms : then?.delivered_ms ?? -DELIVERED_MS });
  }
  // A map keeps the order of insertion: the first were not seen for longest.
  for (const name of known.keys()) {
    if (known.size <= QUEUES_MAX) break;
    known.delete(name);
    live.rates.delete(name);
  }
  const seconds = before ? (reading.at_ms - before.at_ms) / 1000 : 0;
  live.totals = Object.fromEntries(Object.entries(reading.totals).map(([name, value]) =>
    [name, [...(live.totals[name] ?? []), before ? perSecond(value, before.totals[name], seconds) : 0].slice(-READINGS)]));
  before = reading;
}

function status(text, kind) {
  const link = document.getElementById("link");
  if (link.textContent !== text) link.textContent = text;
  link.className = `link ${kind}`;
}

// Show a banner above the page, or none; without figures that are true, the page itself is hidden.
function announce(content, hides) {
  const banner = document.getElementById("banner");
  banner.hidden = content === null;
  put(banner, content);
  document.getElementById("main").hidden = hides;
}

function whereTheFiguresAre({ error, code, leader_http: leader }) {
  if (leader) {
    const address = `${location.protocol}//${leader}/${location.hash}`;
    return h("p", {}, h("strong", {}, "This node follows. "), "Only the leader knows the queues. ", h("a", { href: address }, `Open the leader's dashboard at ${leader}`));
  }
  if (code === "NOT_LEADER") return h("p", {}, h("strong", {}, "This node follows. "), "No leader is known at this moment, so nothing can be shown. This page goes on by itself.");
  return h("p", {}, h("strong", {}, "No figures at this moment: "), error);
}

// Whether the page shows queues, and this node does not know them.
const isUnknown = () => Boolean(live.reading?.error) && !ofNode;

function display(reading) {
  announce(reading.error ? whereTheFiguresAre(reading) : null, isUnknown());
  if (!isUnknown()) show(reading);
}

const again = () => new Promise((resolve) => setTimeout(resolve, RETRY_MS));

async function follow(signal) {
  while (!signal.aborted) {
    try {
      await watch(wanted, signal, (reading) => {
        remember(reading);
        status(reading.error ? (reading.code === "NOT_LEADER" ? "follower" : "no figures") : "live", reading.error ? "lost" : "live");
        display(reading);
      });
    } catch (error) {
      if (signal.aborted) return;
      if (signedOut()) {
        status("signed out", "lost");
        announce(h("p", {}, "You are signed out. ", h("button", { onclick: signIn }, "Sign in")), true);
        return;
      }
      if (error.isRefused) {
        status("refused", "lost");
        announce(h("p", {}, h("strong", {}, "The broker refused this: "), error.message), true);
        await again();
        continue;
      }
    }
    if (signal.aborted) return;
    status("no connection", "lost");
    announce(h("p", {}, h("strong", {}, "No connection to the broker. "), live.reading && !isUnknown() ? `These are the figures of ${new Date(live.reading.at_ms).toLocaleTimeString()}. ` : "", "This page tries again every second."), isUnknown());
    await again();
  }
}

// A page is left: nothing is shown on it any more.
export function leave() {
  [show, ofNode, taken] = [() => {}, false, false];
}

// Watch other queues from now on, and show each reading with `each`.  A page about the node is shown while it follows, too;
// `unless` leaves the subscription of the page, if it has one.
export function subscribe(query, each, { node = false, unless = false } = {}) {
  if (unless && taken) return;
  [show, ofNode, taken] = [each, node || unless, true];
  if (stop && !stop.signal.aborted && JSON.stringify(query) === JSON.stringify(wanted)) {
    if (live.reading) display(live.reading);
    return;
  }
  wanted = query;
  stop?.abort();
  stop = new AbortController();
  follow(stop.signal);
}
