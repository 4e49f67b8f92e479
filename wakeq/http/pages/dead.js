// The page of dead letters: the queues that hold them.

import { age, count, h, linkTo, shown, table } from "./dom.js";
import { subscribe } from "./live.js";
import { put } from "./put.js";
import { redrive } from "./redrive.js";

export function dead(main) {
  const list = h("div", { id: "dead" });
  main.replaceChildren(h("h1", {}, "Dead letters"), list);
  subscribe({ dead_letters: "only", limit: 500 }, (seen) => {
    const letters = seen.queues;
    const more = seen.queues_found > letters.length ? `; the fullest ${count(letters.length)} are shown` : "";
    put(list, table(`Queues of dead letters: ${count(seen.queues_found)}${more}`, [
      { name: "Queue", kind: "text", cell: (queue) => linkTo(queue.name) },
      { name: "Letters", kind: "number", cell: (queue) => count(queue.ready + queue.delayed) },
      { name: "Oldest", kind: "number", cell: (queue) => age(queue, seen.at_ms) },
      { name: "", kind: "doing", cell: (queue) => h("button", { class: "small", disabled: !queue.ready, onclick: () => redrive(queue.name), "aria-label": `Redrive ${shown(queue.name)}` }, "Redrive") },
    ], letters, "No dead letters. A message becomes one when it has failed as often as its queue allows."));
  });
}
