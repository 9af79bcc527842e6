// A plot of lines: one for each scheme, with its dashes and its letter.

import { badge, draw } from "./dom.js";

const HEIGHT = 300;
const MARGIN = { top: 12, right: 14, bottom: 44, left: 62 };

/** Draws into `svg`. `x` and `y` each have `scale(from, to)`, `ticks` of {value, text} and a `label`; lines
 * are {scheme, points: [[x, y]], foot?}, where `foot` is marked below the line. `marks` are x values
 * with a text at the top. `spread` says whether letters step down the height or along the width. */
export function drawPlot(svg, { x, y, lines, marks = [], spread, name }) {
  const width = Math.max(280, svg.parentElement.clientWidth);
  const right = width - MARGIN.right;
  const bottom = HEIGHT - MARGIN.bottom;
  const xs = x.scale(MARGIN.left, right);
  const ys = y.scale(bottom, MARGIN.top);
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("aria-label", name);
  svg.replaceChildren(...frame({ x, y, xs, ys, right, bottom }));
  const area = { top: MARGIN.top, bottom, left: MARGIN.left, right };
  const clip = `${svg.id}-area`;
  svg.append(
    draw(
      "clipPath",
      { id: clip },
      draw("rect", { x: area.left, y: area.top - 2, width: right - area.left, height: bottom - area.top + 4 }),
    ),
  );
  const placed = lines.map((line) => ({ ...line, path: line.points.map(([a, b]) => [xs.at(a), ys.at(b)]) }));
  for (const { scheme, path } of placed) {
    svg.append(
      draw("polyline", {
        class: `line scheme-${scheme.letter}`,
        points: path.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" "),
        "stroke-dasharray": scheme.dash,
        "clip-path": `url(#${clip})`,
      }),
    );
  }
  svg.append(...marks.flatMap(({ value, text }) => markAt(xs.at(value), text, right, bottom)));
  placed.forEach(({ scheme, path, foot }, i) => {
    const share = (i + 0.5) / placed.length;
    const spot = spread === "height" ? crossing(path, area, share) : along(path, area, share);
    const group = draw("g", { class: `scheme-${scheme.letter}` });
    if (foot && xs.at(foot) <= right) group.append(footAt(xs.at(foot), bottom));
    if (spot) group.append(...badge(scheme, ...spot));
    svg.append(group);
  });
}

function frame({ x, y, xs, ys, right, bottom }) {
  const parts = [];
  for (const { value, text } of x.ticks) {
    const at = xs.at(value);
    parts.push(draw("line", { class: "grid", x1: at, x2: at, y1: MARGIN.top, y2: bottom }));
    parts.push(draw("text", { class: "tick", x: at, y: bottom + 16, "text-anchor": "middle" }, text));
  }
  for (const { value, text } of y.ticks) {
    const at = ys.at(value);
    parts.push(draw("line", { class: "grid", x1: MARGIN.left, x2: right, y1: at, y2: at }));
    parts.push(draw("text", { class: "tick", x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, text));
  }
  const middle = (MARGIN.top + bottom) / 2;
  parts.push(
    draw("text", { class: "axis", x: (MARGIN.left + right) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, x.label),
  );
  parts.push(
    draw("text", { class: "axis", "text-anchor": "middle", transform: `translate(12 ${middle}) rotate(-90)` }, y.label),
  );
  return parts;
}

function markAt(at, text, right, bottom) {
  const anchor = at > right - 60 ? "end" : "start";
  return [
    draw("line", { class: "mark", x1: at, x2: at, y1: MARGIN.top, y2: bottom }),
    draw(
      "text",
      { class: "tick", x: at + (anchor === "end" ? -4 : 4), y: MARGIN.top + 10, "text-anchor": anchor },
      text,
    ),
  ];
}

/** A triangle that stands on the axis. */
function footAt(at, bottom) {
  return draw("path", { class: "foot", d: `M ${at} ${bottom - 9} l 5 9 h -10 z` });
}

/** The point where a monotonic line crosses a share of the height, or its end if it does not. */
function crossing(path, { top, bottom }, share) {
  const level = top + (bottom - top) * share;
  const next = path.findIndex(([, y], i) => i > 0 && (y - level) * (path[i - 1][1] - level) <= 0);
  if (next < 0) return path.at(-1);
  const [[xa, ya], [xb, yb]] = [path[next - 1], path[next]];
  return [xa + ((xb - xa) * (level - ya)) / (yb - ya || 1), level];
}

/** The point of a line at a share of the width, or the last point before it inside the picture. */
function along(path, { left, right, top }, share) {
  const inside = path.filter(([x, y]) => y >= top && x <= left + (right - left) * share + 1);
  return inside.at(-1);
}
