// The page of workers: the connections of this node.

import { call, perform } from "./api.js";
import { ask, count, h, linkTo, table } from "./dom.js";
import { subscribe } from "./live.js";
import { again, put } from "./put.js";

export function workers(main) {
  const list = h("div", { id: "workers" });
  const refresh = async () => {
    try {
      const { connections, total } = await call("GET", "/connections", { limit: 200 });
      put(list, table(`${count(connections.length)} of ${count(total)} connections`, [
        { name: "Number", kind: "number narrow", optional: true, cell: (row) => row.id },
        { name: "Door", kind: "narrow", optional: true, cell: (row) => row.door },
        { name: "From", kind: "text", cell: (row) => row.peer },
        { name: "Unanswered", kind: "number", optional: true, cell: (row) => count(row.in_flight) },
        { name: "Subscribed to", kind: "text", cell: (row) => row.queues.flatMap((name, place) => (place ? [", ", linkTo(name)] : [linkTo(name)])) },
        { name: "", kind: "doing", cell: (row) => h("button", { class: "small destroys", "aria-label": `Close connection ${row.id}`, onclick: async () => {
          if (await ask("Close", `Close connection ${row.id} from ${row.peer}?`, { go: "Close", destroys: true })) {
            await perform("Connection closed.", "DELETE", "/connection", { id: row.id });
            refresh();
          }
        } }, "Close") },
      ], connections, "No connections."));
    } catch (error) {
      put(list, h("p", { class: "bad" }, error.message));
    }
  };
  main.replaceChildren(h("h1", {}, "Workers"), h("div", { class: "tools" }, h("button", { onclick: refresh }, "Refresh")), list);
  subscribe({ limit: 1 }, again(list, refresh), { node: true });
  refresh();
}
