// The page of the cluster: the members, who leads, and how far each is behind.

import { bytes, cards, count, h, table } from "./dom.js";
import { HIDDEN, subscribe } from "./live.js";
import { put } from "./put.js";

export function cluster(main) {
  const content = h("div", { id: "cluster" });
  main.replaceChildren(h("h1", {}, "Cluster"), content);
  subscribe({ limit: 1 }, ({ cluster: facts, error }) => {
    if (!facts.members) put(content, h("p", { class: "bad" }, error || HIDDEN));
    else put(content, ...(facts.members.length === 1 ? alone(facts) : together(facts)));
  }, { node: true });
}

const serves = (facts) => ["Serves clients", facts.serves ? h("span", { class: "good" }, "yes") : h("span", { class: facts.role === "leader" || facts.leader === null ? "bad" : "soft" }, "no")];

const alone = (facts) => [
  h("p", {}, "This broker runs alone, on one node. Its log and its queues are on this machine only; with three nodes, the broker goes on when one of them is lost."),
  cards([serves(facts), ["Entries in the log", count(facts.committed)]])];

const together = (facts) => [
  cards([["This node", `${facts.node}`, facts.role], ["Leader", facts.leader ?? "none"], ["Term", count(facts.term)],
    ["Committed", count(facts.committed)], serves(facts)]),
  table("Members; only the leader knows how far behind the others are", [
    { name: "Node", kind: "number narrow", cell: (row) => row.node },
    { name: "Address", kind: "text", cell: (row) => row.address || "–" },
    { name: "Votes", cell: (row) => (row.votes ? "yes" : "not yet") },
    { name: "Connected", cell: (row) => h("span", { class: row.is_connected ? "good" : "bad" }, row.is_connected ? "yes" : "no") },
    { name: "Behind", kind: "number", cell: (row) => (row.behind_bytes === null ? "?" : bytes(row.behind_bytes)) },
  ], facts.members)];
