// The distributions of the completion time of all schemes, and their mean and quantiles.

import { byId, make, swatch } from "./dom.js";
import { plain, ratio, seconds } from "./format.js";
import { drawPlot } from "./plot.js";
import { linearScale, logScale, logTicks } from "./scale.js";
import { nameOf, SCHEMES } from "./schemes.js";
import { compared, questionOf } from "./settings.js";

const POINTS = 500;
const TAIL = 1e-6;
// Curves end at this multiple of the best median. Otherwise one slow scheme would compress the others.
const WIDEST = 20;
const PLACES = { mean: 0, p50: 3, p99: 4, "p99.9": 5 };
const [LEAST, LAST, LOSSLESS, RTT, LOSS_CHUNK, CHUNK_BYTES] = [6, 7, 8, 9, 10, 11];

/** The questions for the figures of every scheme. */
export function figureJobs(settings) {
  return SCHEMES.map((scheme) => ({ call: "figures", question: questionOf(settings, scheme) }));
}

/** The answer for each compared scheme: {scheme, name, times: {mean, p50, ..}} or a fault. */
export function readFigures(settings, answers) {
  return compared(settings).map((scheme) => {
    const answer = answers[scheme.number];
    const entry = { scheme, name: nameOf(scheme, settings) };
    if (answer.fault) return { ...entry, fault: answer.fault };
    const times = Object.fromEntries(Object.entries(PLACES).map(([by, place]) => [by, answer.numbers[place]]));
    return { ...entry, times, least: answer.numbers[LEAST], last: answer.numbers[LAST] };
  });
}

/** The properties of the path, from the first scheme that has an answer. */
export function readPath(answers) {
  const numbers = answers.find((answer) => answer.numbers)?.numbers;
  return (
    numbers && {
      lossless: numbers[LOSSLESS],
      rtt: numbers[RTT],
      lossChunk: numbers[LOSS_CHUNK],
      chunkBytes: numbers[CHUNK_BYTES],
    }
  );
}

/** The smallest value of `by` among `figures`. */
function bestOf(figures, by) {
  const answered = figures.filter((entry) => entry.times);
  return answered.reduce((best, entry) => (best && best.times[by] <= entry.times[by] ? best : entry), null);
}

/** Fills the table of figures. */
export function showFigures(settings, figures) {
  const best = bestOf(figures, settings.by);
  byId("figures").replaceChildren(
    ...figures.map((entry) => {
      const head = make(
        "th",
        { scope: "row" },
        swatch(entry.scheme),
        make("span", {}, make("code", {}, entry.name), make("small", {}, entry.scheme.title)),
      );
      if (entry.fault)
        return make(
          "tr",
          { "data-scheme": entry.scheme.letter },
          head,
          make("td", { colspan: 5, class: "none" }, entry.fault.text),
        );
      const cells = Object.entries(entry.times).map(([by, time]) =>
        make("td", { "data-by": by, "data-seconds": time, class: by === settings.by ? "chosen" : "" }, seconds(time)),
      );
      const cost = make("td", {}, entry === best ? "best" : ratio(entry.times[settings.by] / best.times[settings.by]));
      return make(
        "tr",
        { "data-scheme": entry.scheme.letter, class: entry === best ? "best" : "" },
        head,
        ...cells,
        cost,
      );
    }),
  );
}

/** The questions for the curves: all over the same times. */
export function curveJobs(settings, figures) {
  const answered = figures.filter((entry) => entry.times);
  const from = Math.min(...answered.map((entry) => entry.least)) * 0.97;
  const widest = WIDEST * Math.min(...answered.map((entry) => entry.times.p50));
  const to = Math.min(widest, Math.max(...answered.map((entry) => entry.last)) * 1.03);
  return answered.map((entry) => ({
    call: "survival",
    question: questionOf(settings, entry.scheme),
    args: [from, to, POINTS],
  }));
}

/** Draws the curves from the answers to `curveJobs`. */
export function showCurves(settings, figures, answers) {
  const answered = figures.filter((entry) => entry.times);
  const [from, to] = [answers[0].numbers[0], answers[0].numbers.at(-2)];
  const falling = settings.view === "survival";
  const lines = answered.map((entry, i) => ({
    scheme: entry.scheme,
    foot: entry.times.mean,
    points: pairs(answers[i].numbers, falling),
  }));
  const narrow = byId("curves").parentElement.clientWidth < 500;
  drawPlot(byId("curves"), {
    name: `${falling ? "Share of messages that take longer" : "Share of messages that are complete"}, by time, for ${answered.map((entry) => entry.name).join(", ")}. The table below has the numbers.`,
    x: {
      scale: (a, b) => logScale(from, to, a, b),
      ticks: logTicks(from, to, narrow ? 5 : 9).map((value) => ({
        value,
        text: seconds(value, 3).replace(/\.0+ /, " "),
      })),
      label: "completion time (triangles: means)",
    },
    y: falling
      ? {
          scale: (a, b) => logScale(TAIL, 1, a, b),
          ticks: [
            [1, "1"],
            [0.1, "0.1"],
            [0.01, "p99"],
            [1e-3, "p99.9"],
            [1e-4, "1e-4"],
            [1e-5, "1e-5"],
            [1e-6, "1e-6"],
          ].map(([value, text]) => ({ value, text })),
          label: "share that takes longer",
        }
      : {
          scale: (a, b) => linearScale(0, 1, a, b),
          ticks: [0, 0.25, 0.5, 0.75, 0.99].map((value) => ({
            value,
            text: value === 0.5 ? "p50" : value === 0.99 ? "p99" : plain(value),
          })),
          label: "share that is complete",
        },
    lines,
    spread: "height",
  });
}

function pairs(numbers, falling) {
  const points = [];
  for (let i = 0; i < numbers.length; i += 2) {
    const longer = numbers[i + 1];
    if (falling && longer < TAIL) {
      points.push([numbers[i], TAIL]);
      break;
    }
    points.push([numbers[i], falling ? longer : 1 - longer]);
  }
  return points;
}
