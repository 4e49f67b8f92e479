// Elements from data.  Text stays text: the page never interprets data of a queue as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element[name] = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...present(children));
  return element;
}

export const present = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false);

export const shown = (name) => (name === "" ? "(default)" : name);

// A long name may break after each of its parts.
export const linkTo = (name) => h("a", { href: `#/queue/${encodeURIComponent(name)}` },
  shown(name).split(/(?<=[.:/_-])/).flatMap((part, place) => (place ? [h("wbr"), part] : [part])));

export const count = (number) => Number(number).toLocaleString("en");

export function span(seconds) {
  if (seconds < 1) return seconds <= 0 ? "–" : "< 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (number >= 1024 && unit < units.length - 1) [number, unit] = [number / 1024, unit + 1];
  return `${number < 10 && unit ? number.toFixed(1) : Math.round(number)} ${units[unit]}`;
}

export const moment = (ms) => new Date(ms).toLocaleString();

// How long the oldest ready message of a queue has waited.
export const age = (queue, at) => (queue.ready && queue.oldest_ready_ms ? span((at - queue.oldest_ready_ms) / 1000) : "–");

export const rate = (number) => (number >= 100 ? count(Math.round(number)) : number ? number.toFixed(1) : "0");

export function cards(facts) {
  return h("dl", { class: `cards of-${facts.length}` }, facts.map(([name, value, note]) =>
    h("div", { class: "card" }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, ` ${note}`) : null))));
}

const rowKey = (row) => row.uid ?? row.name ?? row.id ?? row.node;

// A column is {name, cell(row), kind: "number", "narrow", "text", "body", "doing" or "", optional}.
// A caption of several parts begins with its text.  On a phone, a row with a body is laid out in lines.
export function table(caption, columns, rows, none = "No entries.") {
  const names = (column) => [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null;
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": [caption].flat()[0].trim() },
    h("table", { class: columns.some((column) => column.kind === "body") ? "stacked" : null },
      h("caption", {}, [caption].flat()),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: names(column) }, column.name)))),
      h("tbody", {}, rows.length
        ? rows.map((row) => h("tr", { "data-key": rowKey(row) }, columns.map((column) => h("td", { class: names(column) }, column.cell(row)))))
        : h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, none)))));
}

export function say(text, bad = false) {
  const alert = h("div", { class: bad ? "alert bad" : "alert" }, text);
  document.getElementById("alerts").append(alert);
  setTimeout(() => alert.remove(), bad ? 12000 : 5000);
}

// Ask in a dialog; resolves to the values of its fields, or to null.  A field is {name, label, value, required, autofocus}
// and a type of an input, or "text lines" or `options`, and may have a `hint`.
export function ask(title, text, { fields = [], go = "OK", destroys = false, isWrong = false } = {}) {
  const dialog = document.getElementById("dialog");
  const inputs = fields.map(fieldOf);
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      typeof text === "string" ? h("p", isWrong ? { class: "bad", role: "alert" } : {}, text) : text,
      fields.map((field, place) => h("label", {}, field.label, inputs[place], field.hint ? h("small", { class: "soft" }, field.hint) : null)),
      h("div", { class: "tools" },
        h("button", { value: "go", class: destroys ? "destroys" : "main" }, go),
        h("button", { value: "no", formnovalidate: true, autofocus: destroys }, "Cancel")));
    dialog.replaceChildren(form);
    dialog.onclose = () => {
      const values = Object.fromEntries(inputs.map((input) => [input.name, input.value]));
      resolve(dialog.returnValue === "go" ? values : null);
    };
    dialog.returnValue = "";
    dialog.showModal();
  });
}

function fieldOf({ name, value = "", type = "text", required, autofocus, options, min, step, placeholder }) {
  const common = { name, required, autofocus, autocomplete: "off", placeholder };
  if (options) return h("select", common, options.map(([one, label]) => h("option", { value: one, selected: one === value }, label)));
  if (type === "text lines") return h("textarea", { ...common, rows: 5, spellcheck: "false" }, value);
  return h("input", { ...common, value, type, min, step });
}

export function tell(title, content) {
  const dialog = document.getElementById("dialog");
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), content,
    h("div", { class: "tools" }, h("button", {}, "Close"))));
  dialog.onclose = null;
  dialog.showModal();
}
