// The inputs: a slider and a text box for each number, choices for words, boxes for schemes.

import { byId, make, swatch } from "./dom.js";
import { plain } from "./format.js";
import { SCHEMES } from "./schemes.js";
import { NUMBERS, readNumber, WORDS } from "./settings.js";

const nearest = (stops, value) =>
  stops.reduce(
    (best, stop, i) => (Math.abs(Math.log(stop / value)) < Math.abs(Math.log(stops[best] / value)) ? i : best),
    0,
  );

/** Builds all inputs. `onChange(settings)` gets the new settings whenever all inputs are valid. */
export function buildControls(first, onChange) {
  let settings = first;
  const change = (part) => {
    settings = { ...settings, ...part };
    onChange(settings);
  };
  const numbers = NUMBERS.map((input) => buildNumber(input, (value) => change({ [input.key]: value })));
  byId("numbers").append(...numbers.map((number) => number.element));
  for (const { key } of WORDS) {
    byId(key).addEventListener("change", (event) => change({ [key]: event.target.value }));
  }
  const boxes = buildBoxes(
    (compare) => change({ compare }),
    () => settings.compare,
  );
  return {
    /** Shows `next` in all inputs. */
    set(next) {
      settings = next;
      numbers.forEach((number, i) => number.set(next[NUMBERS[i].key]));
      for (const { key } of WORDS) byId(key).value = next[key];
      boxes(next.compare);
    },
    /** Shows the faults of the model, {input, text}, at the inputs that they are about. */
    fault(faults) {
      numbers.forEach((number, i) => number.fault(faults.find((fault) => fault.input === i)?.text ?? ""));
      const rest = faults.filter((fault) => fault.input >= NUMBERS.length).map((fault) => fault.text);
      byId("fault").textContent = rest[0] ?? "";
    },
    /** Shows a short text about what the value of `key` means. */
    note(key, text) {
      numbers[NUMBERS.findIndex((input) => input.key === key)].note(text);
    },
  };
}

function buildNumber({ key, label, unit, stops }, onValue) {
  const text = make("input", {
    id: key,
    type: "text",
    inputmode: "decimal",
    autocomplete: "off",
    "aria-describedby": `${key}-fault ${key}-note`,
  });
  const slider = make("input", {
    id: `${key}-slider`,
    type: "range",
    min: 0,
    max: stops.length - 1,
    step: 1,
    "aria-label": `${label}, slider`,
  });
  const fault = make("p", { id: `${key}-fault`, class: "fault", role: "status" });
  const note = make("small", { id: `${key}-note`, class: "note" });
  let typing = "";
  let model = "";
  const complain = () => {
    fault.textContent = typing || model;
    text.setAttribute("aria-invalid", String(Boolean(typing || model)));
  };
  const slide = (value) => {
    slider.value = String(value > 0 ? nearest(stops, value) : 0);
    slider.setAttribute("aria-valuetext", `${plain(value)} ${unit}`);
  };
  text.addEventListener("input", () => {
    const { value, problem } = readNumber(text.value);
    typing = problem ?? "";
    complain();
    if (problem) return;
    slide(value);
    onValue(value);
  });
  slider.addEventListener("input", () => {
    const value = stops[Number(slider.value)];
    typing = "";
    text.value = plain(value);
    slide(value);
    complain();
    onValue(value);
  });
  const element = make(
    "div",
    { class: "number" },
    make("label", { for: key }, label, " ", make("small", {}, unit)),
    note,
    text,
    slider,
    fault,
  );
  return {
    element,
    set(value) {
      typing = "";
      if (readNumber(text.value).value !== value) text.value = plain(value);
      slide(value);
      complain();
    },
    fault(words) {
      model = words;
      complain();
    },
    note(words) {
      note.textContent = words;
    },
  };
}

/** Check boxes for the schemes, of which at least one stays checked. Returns a function that sets them. */
function buildBoxes(onCompare, compare) {
  const boxes = SCHEMES.map((scheme) => {
    const box = make("input", { type: "checkbox", id: `scheme-${scheme.letter}`, value: scheme.letter });
    box.addEventListener("change", () => {
      const letters = boxes
        .filter((other) => other.checked)
        .map((other) => other.value)
        .join("");
      if (letters) onCompare(letters);
      else box.checked = true;
    });
    const family = scheme.name("k", "m");
    byId("schemes").append(
      make("label", { class: "scheme", for: box.id }, box, swatch(scheme), make("code", {}, family)),
    );
    return box;
  });
  return () =>
    boxes.forEach((box) => {
      box.checked = compare().includes(box.value);
    });
}
