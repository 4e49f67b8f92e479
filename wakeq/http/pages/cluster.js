// The page of the cluster: the members, who leads, and how far each is behind.

import { bytes, cards, count, h, table } from "./dom.js";
import { HIDDEN, subscribe } from "./live.js";
import { put } from "./put.js";

export function cluster(main) {
  const content = h("div", { id: "cluster" });
  main.replaceChildren(h("h1", {}, "Cluster"), content);
  subscribe({ limit: 1 }, ({ cluster: facts, error }) => {
    if (!facts.members) return put(content, h("p", { class: "bad" }, error || HIDDEN));
    put(content,
      cards([["This node", `${facts.node}`, facts.role], ["Leader", facts.leader ?? "none"], ["Term", count(facts.term)],
        ["Committed", count(facts.committed)], ["Serves", facts.serves ? h("span", { class: "good" }, "yes") : h("span", { class: "bad" }, "no")]]),
      table("Members; only the leader knows how far behind the others are", [
        { name: "Node", kind: "number narrow", cell: (row) => row.node },
        { name: "Address", kind: "text", cell: (row) => row.address || "–" },
        { name: "Votes", cell: (row) => (row.votes ? "yes" : "not yet") },
        { name: "Connected", cell: (row) => h("span", { class: row.is_connected ? "good" : "bad" }, row.is_connected ? "yes" : "no") },
        { name: "Behind", kind: "number", cell: (row) => (row.behind_bytes === null ? "?" : bytes(row.behind_bytes)) },
      ], facts.members));
    return undefined;
  }, { node: true });
}
