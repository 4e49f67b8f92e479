// The page of one message: its state, its body, its headers, why it waits, and its life; also of one that is finished.

import { actionsOn, causesOf } from "./actions.js";
import { call } from "./api.js";
import { bytes, count, h, linkTo, moment, span, table } from "./dom.js";
import { subscribe } from "./live.js";
import { addressOf, whenOf } from "./messages.js";
import { again, put } from "./put.js";

// How an event looks in the life of a message.
const KINDS = {
  published: "going", stashed: "going", delivered: "going", claimed: "going", extended: "", acknowledged: "good", failed: "bad",
  "timed out": "bad", disconnected: "bad", "dead lettered": "bad", expired: "warn", released: "warn", dropped: "warn",
  deleted: "warn", purged: "warn", "deleted with its queue": "warn",
};
const EXACTLY = { year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 };
const FORMATS = { json: "JSON", messagepack: "MessagePack, shown as JSON", text: "Text", binary: "Binary, in hexadecimal" };

export function message(main, ...parts) {
  const [name, uid] = [parts.slice(0, -1).join("/"), parts.at(-1) ?? ""];
  const [tools, facts, body, life] = [h("div", { class: "tools" }), h("div", {}), h("section", {}), h("section", { id: "life", "aria-label": "Life" })];
  // The row of the message while its queue has it, its life, and what of the row was seen when that was read.
  let [row, history, causes, seen, isLeft] = [null, null, [], "", false];

  const read = async () => {
    // A message of a queue that is gone has a life all the same.
    row = await call("GET", "/message", { queue: name, uid }).then((found) => found.message, () => null);
    const state = row ? JSON.stringify([row.state, row.error_count, row.until_ms, row.due_ms]) : "gone";
    try {
      if (state !== seen) {
        seen = state;
        [causes, history] = await Promise.all([
          call("GET", "/messages/why", { queue: name, uid }).then((found) => found.causes, () => []),
          row && !history ? Promise.resolve(null) : call("GET", "/messages/history", { queue: name, uid })]);
        draw();
        // What the queue has is shown before a long journal is searched.
        history ??= await call("GET", "/messages/history", { queue: name, uid });
      }
      draw();
    } catch (error) {
      put(life, h("h2", {}, "Life"), h("p", { class: "bad" }, error.message));
    }
  };
  function draw() {
    if (isLeft) return;
    const told = row ?? history?.message;
    const letter = causes.find((cause) => cause.code === "dead");
    put(tools, ...(row ? actionsOn(name, [row], read) : []).map(({ text, go, destroys }) => h("button", { class: destroys ? "destroys" : null, onclick: go }, text)),
      h("button", { onclick: () => { seen = ""; read(); } }, "Refresh"));
    put(facts, row ? factsOf(row) : null,
      row && row.state !== "leased" && causes.length ? h("div", {}, h("h2", {}, "Why it is not being processed"), causesOf(causes)) : null,
      letter ? h("p", {}, "It became a dead letter: ", h("a", { href: addressOf(letter.queue, letter.uid) }, h("code", {}, letter.uid)), " in ", linkTo(letter.queue), ".") : null,
      !row && !letter && causes.length ? h("p", {}, h("strong", {}, "Not in the queue: "), `${causes[0].text}.`) : null);
    put(body, ...(told ? bodyOf(told) : [h("h2", {}, "Body"), h("p", { class: "soft" }, history ? "The history of this broker does not have it." : "Searching the history …")]));
    put(life, h("h2", {}, "Life"), history ? lifeOf(history, row) : h("p", { class: "soft" }, "Searching the history …"));
  }

  main.replaceChildren(
    h("h1", {}, "Message ", h("code", {}, uid)), h("p", { class: "soft" }, "In queue ", linkTo(name)),
    tools, facts, h("div", { class: "about" }, body, life));
  read();
  const renew = again(life, read);
  subscribe({ queue: name, limit: 1, prefix: name }, () => {
    // A finished message does not change any more.
    if (row || !history) renew();
  });
  return () => { isLeft = true; };
}

function factsOf(row) {
  const now = Date.now();
  const facts = [
    ["State", row.state, whenOf(row, now)], ["Priority", count(row.priority)], ["Deliveries that ended", count(row.error_count)],
    ["Failures", count(row.failures)], ["Published", moment(row.published_ms), `${span((now - row.published_ms) / 1000)} ago`],
    ["Expires", row.expires_ms ? moment(row.expires_ms) : "never"],
  ];
  return h("dl", { class: "facts" }, facts.map(([name, value, note]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value, note ? h("small", { class: "soft" }, ` ${note}`) : null))));
}

function bodyOf({ readable, headers }) {
  const names = Object.entries(headers);
  const origin = headers["wakeq-origin"];
  const cell = ({ key, value }) => (key === "wakeq-origin-uid" && origin !== undefined ? h("a", { href: addressOf(origin, value) }, value) : key === "wakeq-origin" ? linkTo(value) : value);
  return [
    h("h2", {}, "Body ", h("small", { class: "soft" }, `${FORMATS[readable.format]}, ${bytes(readable.size)}`)),
    h("pre", { tabindex: 0, "aria-label": "Body", class: readable.format === "binary" ? "hex" : null }, readable.text || "(empty)"),
    readable.is_cut ? h("p", { class: "soft" }, "Only the beginning is shown.") : null,
    names.length ? null : h("h2", {}, "Headers"),
    names.length ? table("Headers", [
      { name: "Name", kind: "narrow", cell: ({ key }) => h("code", {}, key) },
      { name: "Value", kind: "text", cell },
    ], names.map(([key, value]) => ({ key, value, name: key }))) : h("p", { class: "soft" }, "It has no headers."),
  ];
}

function lifeOf({ events, is_complete: isComplete, since, left_out: leftOut }, row) {
  const missing = isComplete ? null : h("p", { class: "warn" }, events.length ? "Some events are missing." : "Nothing is known of its life.",
    since ? ` This broker has its history since ${moment(Date.parse(since))}.` : "");
  const many = leftOut ? h("p", { class: "warn" }, `${count(leftOut)} events in the middle are left out.`) : null;
  return h("div", {}, missing, many, h("ol", { class: "life" }, events.map((event, place) => eventOf(event, events[place - 1], events[0])),
    row ? h("li", { class: row.state === "leased" ? "going" : "warn" }, h("span", { class: "what" }, `now ${row.state}`)) : null));
}

function eventOf(event, before, first) {
  const at = Date.parse(event.at);
  const passed = before ? `+${exact(at - Date.parse(before.at))}${before === first ? "" : `, ${exact(at - Date.parse(first.at))} in all`}` : "";
  const details = [
    event.worker === null ? null : event.event === "published" ? `by connection ${event.worker}` : `worker ${event.worker}`,
    event.reason && !["nack", "timeout", "disconnect", "returned"].includes(event.reason) ? event.reason : null,
    event.due === null ? null : event.event === "delivered" || event.event === "claimed" || event.event === "extended" ? `until ${moment(Date.parse(event.due))}` : Date.parse(event.due) > at ? `due ${moment(Date.parse(event.due))}` : null,
  ].filter(Boolean).join(", ");
  return h("li", { class: KINDS[event.event] ?? "" },
    h("div", {}, h("span", { class: "what" }, event.times > 1 ? `${event.event} ${count(event.times)} times` : event.event), h("span", { class: "when", title: event.at }, `${new Date(at).toLocaleString(undefined, EXACTLY)}${passed ? ` (${passed})` : ""}`)),
    details ? h("p", {}, details) : null,
    event.queue === null ? null : h("p", {}, event.event === "published" ? "from " : "to ", linkTo(event.queue)),
    event.error ? h("p", { class: "bad" }, event.error) : null);
}

// A span as exact as it matters: milliseconds below ten seconds.
function exact(ms) {
  if (ms < 1000) return `${ms} ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 120000) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 7200000 ? `${Math.round(ms / 60000)} min` : `${(ms / 3600000).toFixed(1)} h`;
}
