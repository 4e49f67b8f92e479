// Charts of messages published and acknowledged.

import { h, rate } from "./dom.js";
import { READINGS, recent } from "./live.js";

// Messages published, as an area, and acknowledged, as a line, over the last minute; the newest is at the right.
export function spark({ ins, outs }, kind = "spark") {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const [width, height, most] = [120, 26, Math.max(1, ...ins, ...outs)];
  const step = width / (READINGS - 1);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", kind);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `${rate(recent(ins))} published and ${rate(recent(outs))} acknowledged per second`);
  for (const [shape, line, values] of [["polygon", "in", ins], ["polyline", "in", ins], ["polyline", "out", outs]]) {
    const points = values.map((value, place) =>
      `${(width - (values.length - 1 - place) * step).toFixed(1)},${(height - 1 - (value / most) * (height - 3)).toFixed(1)}`);
    if (shape === "polygon") points.push(`${width},${height}`, `${(width - (values.length - 1) * step).toFixed(1)},${height}`);
    const drawn = document.createElementNS(space, shape);
    drawn.setAttribute("class", line);
    drawn.setAttribute("points", points.join(" "));
    svg.append(drawn);
  }
  return svg;
}

export const legend = () => h("span", { class: "legend" }, h("span", { class: "in" }, "published"), " ", h("span", { class: "out" }, "acknowledged"));
