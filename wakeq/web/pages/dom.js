// Elements from data.  Text stays text: nothing that came from a queue is ever read as HTML.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const shown = (name) => (name === "" ? "(default)" : name);

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

export const rate = (number) => (number >= 100 ? count(Math.round(number)) : number ? number.toFixed(1) : "0");

export function cards(facts) {
  return h("dl", { class: "cards" }, facts.map(([name, value, note]) =>
    h("div", { class: "card" }, h("dt", {}, name), h("dd", {}, value, note ? h("small", {}, ` ${note}`) : null))));
}

// A column is {name, cell(row), kind: "number" | "text" | "body" | "", optional}.
export function table(caption, columns, rows, none = "Nothing here.") {
  const names = (column) => [column.kind, column.optional && "optional"].filter(Boolean).join(" ") || null;
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: names(column) }, column.name)))),
      h("tbody", {}, rows.length
        ? rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: names(column) }, column.cell(row)))))
        : h("tr", {}, h("td", { colspan: columns.length, class: "soft" }, none)))));
}

// Two lines, what came in and what was done, over the last minute.
export function spark(ins, outs) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const [width, height, most] = [120, 26, Math.max(1, ...ins, ...outs)];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${rate(ins.at(-1) ?? 0)} published and ${rate(outs.at(-1) ?? 0)} done a second`);
  for (const [kind, values] of [["in", ins], ["out", outs]]) {
    const step = width / Math.max(1, values.length - 1);
    const points = values.map((value, place) => `${(place * step).toFixed(1)},${(height - 1 - (value / most) * (height - 3)).toFixed(1)}`);
    const line = document.createElementNS(space, "polyline");
    line.setAttribute("class", kind);
    line.setAttribute("points", points.join(" "));
    svg.append(line);
  }
  return svg;
}

export function say(text, bad = false) {
  const alert = h("div", { class: bad ? "alert bad" : "alert" }, text);
  document.getElementById("alerts").append(alert);
  setTimeout(() => alert.remove(), bad ? 12000 : 5000);
}

// Ask in a dialog; resolves to the values of its fields, or null.
export function ask(title, text, { fields = [], go = "Do it", destroys = false } = {}) {
  const dialog = document.getElementById("dialog");
  const inputs = fields.map((field) => h("input", { name: field.name, value: field.value ?? "", type: field.type ?? "text",
    required: field.required, autocomplete: "off" }));
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      typeof text === "string" ? h("p", {}, text) : text,
      fields.map((field, place) => h("label", {}, field.label, inputs[place])),
      h("div", { class: "tools" },
        h("button", { value: "go", class: destroys ? "destroys" : null }, go),
        h("button", { value: "no", formnovalidate: true }, "Cancel")));
    dialog.replaceChildren(form);
    dialog.onclose = () => {
      const values = Object.fromEntries(inputs.map((input) => [input.name, input.value]));
      resolve(dialog.returnValue === "go" ? values : null);
    };
    dialog.returnValue = "";
    dialog.showModal();
  });
}

export function tell(title, content) {
  const dialog = document.getElementById("dialog");
  dialog.replaceChildren(h("form", { method: "dialog" }, h("h2", { id: "dialog-title" }, title), content,
    h("div", { class: "tools" }, h("button", {}, "Close"))));
  dialog.onclose = null;
  dialog.showModal();
}
