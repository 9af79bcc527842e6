// The cost of a wrong choice: how much longer each scheme takes than the best one, for the assumed loss and for
// other losses.

import { byId, make, swatch } from "./dom.js";
import { plain, ratio, seconds } from "./format.js";
import { drawPlot } from "./plot.js";
import { logScale, logTicks } from "./scale.js";
import { compared, questionOf, JUDGED_BY } from "./settings.js";

const LOSSES = Array.from({ length: 33 }, (_, i) => 10 ** (-9 + i / 4));
const FACTORS = [0.1, 1, 10];
// Upper end of the plot. Without it, one slow scheme would compress the curves of the others.
const MOST_SLOWER = 20;

function jobs(settings, loss) {
  const by = JUDGED_BY.indexOf(settings.by);
  return compared(settings).map((scheme) => ({
    call: "time",
    question: questionOf({ ...settings, loss }, scheme),
    args: [by],
  }));
}

/** The questions: a batch for the table, then one for each loss of the plot. */
export function costBatches(settings) {
  const table = FACTORS.flatMap((factor) => jobs(settings, settings.loss * factor));
  return [table, ...LOSSES.map((loss) => jobs(settings, loss))];
}

/** Times as multiples of the shortest; undefined where there is no time. */
function slowdowns(answers) {
  const times = answers.map((answer) => answer.numbers?.[0]);
  const least = Math.min(...times.filter((time) => time !== undefined));
  return times.map((time) => (time === undefined ? undefined : { time, slower: time / least }));
}

/** Fills the table; returns the slowdowns, a list of schemes for each factor. */
export function showCost(settings, figures, answers) {
  const count = figures.length;
  const columns = FACTORS.map((_, i) => slowdowns(answers.slice(i * count, (i + 1) * count)));
  byId("cost-head").replaceChildren(
    make("th", { scope: "col" }, "if you choose"),
    ...FACTORS.map((factor) =>
      make(
        "th",
        { scope: "col" },
        make("span", {}, factor === 1 ? "as assumed" : factor < 1 ? "a tenth" : "ten times"),
        make("small", {}, `loss ${plain(Number((settings.loss * factor).toPrecision(3)))}`),
      ),
    ),
  );
  byId("cost").replaceChildren(
    ...figures.map((entry, i) =>
      make(
        "tr",
        { "data-scheme": entry.scheme.letter },
        make("th", { scope: "row" }, swatch(entry.scheme), make("code", {}, entry.name)),
        ...columns.map((column) => costCell(entry.scheme, column[i])),
      ),
    ),
  );
  return columns;
}

function costCell(scheme, found) {
  if (!found) return make("td", { class: "none" }, "no answer");
  const bar = make("span", { class: `bar scheme-${scheme.letter}`, "aria-hidden": "true" });
  bar.style.width = `${Math.min(100, (100 * Math.log(found.slower)) / Math.log(100))}%`;
  const text = found.slower < 1.0005 ? "best" : ratio(found.slower);
  return make(
    "td",
    { "data-slower": found.slower, class: text === "best" ? "best" : "" },
    make("span", {}, text),
    make("small", {}, seconds(found.time)),
    bar,
  );
}

/** One or two sentences about the cost of the choice. */
export function verdict(settings, figures, columns) {
  const here = columns[1];
  const choice = here.findIndex((found) => found && found.slower === 1);
  if (choice < 0) return "No scheme has an answer at these settings.";
  const name = figures[choice].name;
  const others = figures
    .map((entry, i) => ({ name: entry.name, found: here[i] }))
    .filter(({ found }, i) => found && i !== choice)
    .sort((a, b) => a.found.slower - b.found.slower);
  const said = [`Best by ${settings.by}: ${name}, ${seconds(here[choice].time)}.`];
  if (others.length)
    said.push(`Times as long: ${others.map((other) => `${other.name} ${ratio(other.found.slower)}`).join(", ")}.`);
  const stays = [];
  for (const [column, words] of [
    [2, "ten times the loss"],
    [0, "a tenth of the loss"],
  ]) {
    const found = columns[column][choice];
    const best = columns[column].findIndex((other) => other && other.slower === 1);
    if (found?.slower < 1.01) stays.push(words);
    else if (found) said.push(`With ${words} it takes ${ratio(found.slower)} as long as ${figures[best].name}.`);
  }
  if (stays.length) said.push(`With ${stays.join(" or ")} it stays the best, or within 1 %.`);
  return said.join(" ");
}

/** Draws how much longer each scheme takes than the best one, against the loss of the path. `rows` are the answers
 * to the batches of the plot. */
export function showSlowdowns(settings, figures, rows) {
  const columns = rows.map((answers) => slowdowns(answers));
  const lines = figures
    .map((entry, i) => ({
      scheme: entry.scheme,
      points: LOSSES.flatMap((loss, j) => (columns[j][i] ? [[loss, columns[j][i].slower]] : [])),
    }))
    .filter((line) => line.points.length);
  const most = Math.min(
    MOST_SLOWER,
    Math.max(2, ...lines.flatMap((line) => line.points.map(([, slower]) => slower))) * 1.1,
  );
  const within = (loss) => loss >= LOSSES[0] && loss <= LOSSES.at(-1);
  drawPlot(byId("slowdowns"), {
    name: "How many times as long as the best each scheme takes, by the loss of packets. The table above has numbers at the assumed loss, a tenth and ten times of it.",
    x: {
      scale: (a, b) => logScale(LOSSES[0], LOSSES.at(-1), a, b),
      ticks: logTicks(LOSSES[0], LOSSES.at(-1), 9).map((value) => ({ value, text: plain(value) })),
      label: "loss of packets that is met",
    },
    y: {
      scale: (a, b) => logScale(0.95, most, a, b),
      ticks: logTicks(1, most, 6).map((value) => ({ value, text: `${plain(value)}×` })),
      label: "times as long as the best",
    },
    lines,
    marks: within(settings.loss) ? [{ value: settings.loss, text: "assumed" }] : [],
    spread: "width",
  });
}
