// What the colour and the word beside a queue say.

import { h } from "./dom.js";
import { seriesOf } from "./live.js";

const READINGS_MIN = 20; // ten seconds, before which nothing is said of growth
const GROWN_MIN = 10;

export const isDeadLetter = (queue) => queue.is_dead_letter;

// More ready messages than within the last minute: by a tenth, and by ten.
function isGrowing(queue) {
  const { ready } = seriesOf(queue.name);
  return ready.length >= READINGS_MIN && ready.at(-1) - ready[0] >= Math.max(GROWN_MIN, ready[0] / 10);
}

// A client that polls is neither subscribed nor waiting between two fetches, but it is delivered messages.
const hasWorker = (queue) => queue.subscribers + queue.sleepers + queue.waiting + queue.leased > 0 || seriesOf(queue.name).isDelivered;

// [word, colour, explanation], the most urgent first.
export function statusOf(queue) {
  const letters = queue.ready + queue.delayed;
  if (isDeadLetter(queue)) return letters ? ["dead letters", "bad", "These messages failed too often, or were rejected. Look at the error, then redrive or delete them."] : ["no letters", "soft", "No message is a dead letter here."];
  if (queue.paused_until_ms) return ["paused", "warn", "Nothing is delivered until the queue is resumed."];
  if (queue.ready && !hasWorker(queue)) return ["no worker", "bad", "Messages are ready, and no worker asks for them."];
  if (isGrowing(queue)) return ["growing", "warn", "More messages arrive than workers finish."];
  if (queue.leased || seriesOf(queue.name).isDelivered) return ["working", "good", "Workers are delivered messages."];
  if (queue.ready || queue.delayed) return ["waiting", "info", queue.ready ? "Workers are there." : "The messages are not due yet."];
  return ["empty", "soft", "No message is here."];
}

export function statusBadge(queue) {
  const [word, colour, explanation] = statusOf(queue);
  return h("span", { class: `badge ${colour}`, title: explanation }, word);
}
