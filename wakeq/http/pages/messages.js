// The messages of a queue: by state, page by page, searched, with operations on one, on those chosen, or on all that match.

import { actionsOn, makeDue, moveTo, remove, why } from "./actions.js";
import { call } from "./api.js";
import { bytes, count, h, moment, span, table } from "./dom.js";
import { live } from "./live.js";
import { menuButton } from "./menu.js";
import { again, put } from "./put.js";
import { redrive } from "./redrive.js";

const STATES = [["ready", "Ready"], ["delayed", "Delayed"], ["leased", "Leased"], ["all", "All"]];
const ROWS = 50;
const BODY_BYTES = 300;
const TYPED_MS = 300;
// As the broker reads them; anything else is a text to look for.
const CONDITION = /^(header\.[^=!<>~]+|priority|age|deliveries|failures|size|state|uid|error|body|origin|reason|text)(!=|<=|>=|=|<|>|~)/;

export const addressOf = (name, uid) => `#/message/${encodeURIComponent(name)}/${encodeURIComponent(uid)}`;

// Show the messages of a queue in `place`.  Returns `refresh`, which reads them again, and `renew`, which does so at most
// every two seconds and never while somebody is about to press a row.
export function messages(place, name) {
  const list = h("div", { id: "messages" });
  const tabs = h("div", { class: "tools tabs", role: "group", "aria-label": "State of the messages" });
  const bar = h("div", {});
  const pages = h("div", { class: "tools pages" });
  const field = h("input", { type: "search", class: "search", "aria-label": "Search the messages",
    placeholder: "Search: a text, or a condition such as error~timeout", title: "A text is looked for in uid, headers, body and error, whatever its case. Conditions: header.NAME=value, error~text, priority<5, age>3600, failures>0, size>1000" });
  // `starts` are the places where the pages up to this one begin; `asked` counts the questions: a late answer is dropped.
  let [state, search, starts, asked, timer] = ["ready", "", [0], 0, null];
  let found = { messages: [], after: 0, scanned: 0, size: 0 };
  // Chosen messages by uid, and whether all that match are meant.
  let [chosen, all] = [new Map(), false];

  const condition = () => (search === "" ? undefined : CONDITION.test(search) ? search : `text~${search}`);

  // Read one page.  A search asks again and again until the page is full, all was looked at, or something else is asked.
  const read = async () => {
    const mine = ++asked;
    let result = { messages: [], after: starts.at(-1), scanned: 0, size: 0 };
    try {
      do {
        const more = await call("GET", "/messages", { queue: name, state, where: condition(), body_max: BODY_BYTES,
          count: ROWS - result.messages.length, after: result.after });
        if (mine !== asked) return;
        result = { ...more, messages: [...result.messages, ...more.messages], scanned: result.scanned + more.scanned };
        found = { ...result, isSearching: Boolean(search && result.after && result.messages.length < ROWS) };
        if (found.isSearching || search) draw();
      } while (found.isSearching);
      draw();
    } catch (error) {
      if (mine === asked) {
        put(list, h("p", { class: "bad" }, error.message));
        put(pages);
      }
    }
  };
  const stop = () => {
    asked += 1;
    found.isSearching = false;
    draw();
  };
  const begin = () => {
    [starts, chosen, all] = [[0], new Map(), false];
    found = { messages: [], after: 0, scanned: 0, size: 0 };
    drawBar();
    return read();
  };
  // After an operation nothing is chosen any more.
  const refresh = () => {
    [chosen, all] = [new Map(), false];
    return read();
  };
  const turn = (to) => {
    starts = to;
    return read();
  };
  const choose = (picked, isIn) => {
    for (const message of picked) isIn ? chosen.set(message.uid, message) : chosen.delete(message.uid);
    all = false;
    draw();
  };

  function drawTabs() {
    const figures = live.reading?.queues?.find((one) => one.name === name);
    const number = (which) => (!figures ? null : which === "all" ? figures.ready + figures.delayed + figures.leased : figures[which]);
    put(tabs, ...STATES.map(([one, label]) => h("button", { "aria-pressed": String(one === state), onclick: () => { state = one; drawTabs(); begin(); } },
      label, number(one) === null ? null : h("small", {}, ` ${count(number(one))}`))));
  }

  // What is chosen, and what can be done with it.
  function drawBar() {
    if (!chosen.size) return put(bar);
    const whole = found.messages.length > 0 && found.messages.every(({ uid }) => chosen.has(uid));
    const may = state !== "leased" && whole && !all && (found.after || starts.length > 1);
    const matching = search ? `all that match ${search}` : `all messages that are ${state === "all" ? "ready or delayed" : state}`;
    const actions = all ? onAll(matching) : actionsOn(name, [...chosen.values()], refresh);
    return put(bar, h("div", { class: "tools chosen", role: "group", "aria-label": "With the chosen messages" },
      h("strong", {}, all ? `Chosen: ${matching}` : `${count(chosen.size)} chosen`),
      actions.map(({ text, go, destroys }) => h("button", { class: destroys ? "destroys" : null, onclick: go }, text)),
      may ? h("button", { onclick: () => { all = true; drawBar(); } }, `Choose ${matching}`) : null,
      h("button", { onclick: () => { [chosen, all] = [new Map(), false]; draw(); } }, "Choose none")));
  }

  function onAll(about) {
    const where = [...(search ? [condition()] : []), ...(state === "all" ? [] : [`state=${state}`])];
    const choice = { where, about };
    const action = (text, doing, more = {}) => ({ text, ...more, go: async () => { if ((await doing()) !== false) refresh(); } });
    const letters = found.messages.some((message) => message.headers["wakeq-origin"] !== undefined);
    return [
      state === "ready" ? null : action("Make due", () => makeDue(name, choice)),
      letters ? action("Redrive", () => redrive(name, where)) : null,
      action("Move", () => moveTo(name, choice)),
      action("Delete", () => remove(name, choice), { destroys: true }),
    ].filter(Boolean);
  }

  function draw() {
    const rows = found.messages;
    for (const message of rows) if (chosen.has(message.uid)) chosen.set(message.uid, message);
    put(list, tableOf(rows));
    for (const box of list.querySelectorAll("tbody input")) {
      box.checked = chosen.has(box.value);
      box.closest("tr").classList.toggle("chosen-row", box.checked);
    }
    const whole = list.querySelector("thead input");
    if (whole) {
      const here = rows.filter(({ uid }) => chosen.has(uid)).length;
      [whole.checked, whole.indeterminate] = [here > 0 && here === rows.length, here > 0 && here < rows.length];
    }
    drawBar();
    drawPages();
  }

  function drawPages() {
    const looked = `${count(found.scanned)} ${starts.length > 1 ? "more " : ""}messages`;
    const searched = !search ? "" : found.isSearching ? `Searching: looked at ${looked} of ${count(found.size)}` : `Found ${count(found.messages.length)} in ${looked}${found.after ? "" : "; that was the last one"}`;
    const first = (starts.length - 1) * ROWS;
    const rows = found.messages.length;
    const here = rows && !search ? `Messages ${count(first + 1)} to ${count(first + rows)}` : "";
    const hasMore = found.after > 0 && !found.isSearching;
    put(pages,
      h("span", { role: "status" }, searched || here),
      h("span", { class: "tools" },
        found.isSearching ? h("button", { onclick: stop }, "Stop") : null,
        starts.length > 2 ? h("button", { onclick: () => turn([0]) }, "First") : null,
        starts.length > 1 ? h("button", { onclick: () => turn(starts.slice(0, -1)) }, "Previous") : null,
        hasMore ? h("button", { onclick: () => turn([...starts, found.after]) }, search && rows < ROWS ? "Search on" : "Next") : null));
  }

  function tableOf(rows) {
    const now = live.reading?.at_ms ?? Date.now();
    const order = search || state !== "ready" ? "in the order of publication" : "in the order of delivery";
    const one = [["ready", "Ready messages"], ["delayed", "Delayed messages"], ["leased", "Messages that workers have"], ["all", "All messages"]].find(([which]) => which === state)[1];
    const everything = h("input", { type: "checkbox", "aria-label": "Choose all of this page", onclick: (event) => choose(rows, event.currentTarget.checked) });
    const shown = table(`${one}, ${order}`, [
      { name: "", kind: "tick", cell: (message) => h("input", { type: "checkbox", value: message.uid, "aria-label": `Choose ${message.uid}`, onclick: (event) => choose([message], event.currentTarget.checked) }) },
      { name: "Message", kind: "narrow", cell: (message) => h("a", { href: addressOf(name, message.uid) }, h("code", {}, message.uid)) },
      { name: "State", cell: (message) => [message.state, h("div", { class: "soft" }, whenOf(message, now))] },
      { name: "Published", kind: "narrow", optional: true, cell: (message) => h("span", { title: moment(message.published_ms) }, `${span((now - message.published_ms) / 1000)} ago`) },
      { name: "Priority", kind: "number", optional: true, cell: (message) => count(message.priority) },
      { name: "Failures", kind: "number", optional: true, cell: (message) => count(message.failures) },
      ...(rows.some(errorOf) ? [{ name: "Error", kind: "text", cell: (message) => h("div", { class: "bad clamped" }, errorOf(message)) }] : []),
      { name: "Body", kind: "body", cell: (message) => h("div", { class: "clamped" }, bodyOf(message)) },
      { name: "", kind: "doing", cell: (message) => menuButton(`Actions on ${message.uid}`, () => [
        { text: "Open", go: () => { location.hash = addressOf(name, message.uid); } },
        { text: "Why?", go: () => why(name, message.uid) },
        ...actionsOn(name, [message], refresh)]) },
    ], rows, found.isSearching ? "Nothing found so far." : search ? "Nothing found." : "No messages in this state.");
    if (rows.length) shown.querySelector("thead th").replaceChildren(everything);
    return shown;
  }

  field.oninput = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (field.value.trim() === search) return;
      search = field.value.trim();
      begin();
    }, TYPED_MS);
  };
  place.replaceChildren(h("h2", {}, "Messages"), h("div", { class: "tools" }, tabs, field, h("button", { onclick: refresh }, "Refresh")), bar, list, pages);
  drawTabs();
  begin();
  // A page further back, a search and a choice stay as they are until somebody asks for more.
  const renewRows = again(list, read);
  return {
    refresh,
    renew: () => {
      drawTabs();
      if (!search && !chosen.size && starts.length === 1) renewRows();
    },
  };
}

const errorOf = (message) => message.error || message.headers["wakeq-error"] || "";

const bodyOf = (message) => (message.encoding === "base64" ? `${bytes(message.size)} of binary data` : message.body);

export function whenOf(message, now) {
  if (message.state === "leased") return `worker ${message.worker}, until ${moment(message.until_ms)}`;
  if (message.state === "staged") return `claimed by ${message.source || "a pipeline"}${message.until_ms ? `, until ${moment(message.until_ms)}` : ""}`;
  if (message.state === "delayed") return `due ${moment(message.due_ms)}, in ${span((message.due_ms - now) / 1000)}`;
  return "";
}
