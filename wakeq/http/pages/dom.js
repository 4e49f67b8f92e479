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

// A number beside an axis: 1.5k, 20M.
export const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 }).format;

// A time that was measured, from microseconds to days.
export function duration(seconds) {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(3))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds < 7200) return `${Number((seconds / 60).toPrecision(3))} min`;
  return seconds < 172800 ? `${Number((seconds / 3600).toPrecision(3))} h` : `${Number((seconds / 86400).toPrecision(3))} d`;
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

// Figures side by side, each [name, value, note, second note]; the second note stands below.
export function cards(facts) {
  return h("dl", { class: `cards of-${facts.length}` }, facts.map(([name, value, note, below]) =>
    h("div", { class: "card" }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, ` ${note}`) : null, below ? h("small", { class: "below" }, below) : null))));
}

const rowKey = (row) => row.uid ?? row.name ?? row.id ?? row.node;

// A column is {name, cell(row), kind: "number", "narrow", "text", "body", "doing" or "", optional, group, sort}.  Columns side
// by side with one `group` stand under its name.  With `order`, {sort, ascending, choose(sort)}, columns that have a `sort` can
// be pressed.  A caption of several parts begins with its text.  On a phone, a row with a body is laid out in lines.
export function table(caption, columns, rows, none = "No entries.", order = null) {
  const names = (column) => [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null;
  const isSorted = (column) => order !== null && column.sort !== undefined && column.sort === order.sort;
  const heading = (column) => h("th", { scope: "col", class: names(column), "aria-sort": isSorted(column) ? (order.ascending ? "ascending" : "descending") : null },
    order !== null && column.sort !== undefined ? h("button", { class: "sort", onclick: () => order.choose(column.sort) }, column.name) : column.name);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": [caption].flat()[0].trim() },
    h("table", { class: columns.some((column) => column.kind === "body") ? "stacked" : null },
      h("caption", {}, [caption].flat()),
      h("thead", {}, columns.some((column) => column.group) ? h("tr", { class: "groups" }, groups(columns)) : null, h("tr", {}, columns.map(heading))),
      h("tbody", {}, rows.length
        ? rows.map((row) => h("tr", { "data-key": rowKey(row) }, columns.map((column) => h("td", { class: names(column) }, column.cell(row)))))
        : h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, none)))));
}

function groups(columns) {
  const cells = [];
  for (const { group = "", kind = "" } of columns) {
    if (cells.at(-1)?.group === group) cells.at(-1).span += 1;
    // A name over one column hides with it.
    else cells.push({ group, span: 1, kind });
  }
  return cells.map(({ group, span, kind }) => (group ? h("th", { scope: "colgroup", colspan: span, class: span === 1 ? kind : null }, group) : h("td", { colspan: span })));
}

// Say something for some seconds: a text, or several parts.
export function say(content, bad = false) {
  const alert = h("div", { class: bad ? "alert bad" : "alert" }, content);
  document.getElementById("alerts").append(alert);
  setTimeout(() => alert.remove(), bad ? 12000 : 5000);
}

// Ask in a dialog; resolves to the values of its fields, or to null.  A field is {name, label, value, required, autofocus}
// and a type of an input, or "text lines" or `options`; it may have a `hint` and `suggestions`.
export function ask(title, text, { fields = [], go = "OK", destroys = false, isWrong = false } = {}) {
  const dialog = document.getElementById("dialog");
  const inputs = fields.map(fieldOf);
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      typeof text === "string" ? h("p", isWrong ? { class: "bad", role: "alert" } : {}, text) : text,
      fields.map((field, place) => h("label", { class: field.isShort ? "short" : null }, field.label, inputs[place], field.hint ? h("small", { class: "soft" }, field.hint) : null)),
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

function fieldOf({ name, value = "", type = "text", required, autofocus, options, suggestions, min, step, placeholder, rows = 5 }) {
  const common = { name, required, autofocus, autocomplete: "off", placeholder };
  if (options) return h("select", common, options.map(([one, label]) => h("option", { value: one, selected: one === value }, label)));
  if (type === "text lines") return h("textarea", { ...common, rows, spellcheck: "false" }, value);
  const input = h("input", { ...common, value, type, min, step });
  if (!suggestions) return input;
  // An input finds its suggestions by their id, and has the value of what was typed.
  input.setAttribute("list", `${name}-suggestions`);
  input.append(h("datalist", { id: `${name}-suggestions` }, suggestions.map((one) => h("option", { value: one }))));
  return input;
}

export function tell(title, content) {
  const dialog = document.getElementById("dialog");
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), content,
    h("div", { class: "tools" }, h("button", {}, "Close"))));
  dialog.onclose = null;
  dialog.showModal();
}
