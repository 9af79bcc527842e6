// Making elements. Text goes in as text, never as markup.

/** An element `name` with `attributes` and `children` (elements or strings). */
export function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same for a part of a picture. */
export function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A short piece of a scheme's line with its letter, for tables and legends. */
export function swatch(scheme) {
  return draw(
    "svg",
    { class: `swatch scheme-${scheme.letter}`, viewBox: "0 0 44 18", "aria-hidden": "true" },
    draw("line", { class: "line", x1: 0, x2: 44, y1: 9, y2: 9, "stroke-dasharray": scheme.dash }),
    ...badge(scheme, 22, 9),
  );
}

/** A scheme's letter on a disc at (x, y). */
export function badge(scheme, x, y) {
  return [
    draw("circle", { class: "disc", cx: x, cy: y, r: 8 }),
    draw("text", { class: "letter", x, y: y + 4, "text-anchor": "middle" }, scheme.letter),
  ];
}
