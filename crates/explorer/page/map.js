// The best scheme by message size and loss (the paper's Fig. 9): a grid of cells. Arrow keys move between cells;
// Enter or a click changes the settings to those of the cell.

import { byId, make } from "./dom.js";
import { bytes, digits, plain, ratio, seconds } from "./format.js";
import { logScale } from "./scale.js";
import { nameOf } from "./schemes.js";
import { compared, questionOf, JUDGED_BY } from "./settings.js";

const SIZES_MIB = Array.from({ length: 17 }, (_, i) => 2 ** (13 - i));
const LOSSES = Array.from({ length: 9 }, (_, i) => Number(`1e${i - 9}`));
const TIE = 1.05;

/** The questions for the map: one batch for each row. */
export function mapBatches(settings) {
  const by = JUDGED_BY.indexOf(settings.by);
  return SIZES_MIB.map((size_mib) =>
    LOSSES.flatMap((loss) =>
      compared(settings).map((scheme) => ({
        call: "time",
        question: questionOf({ ...settings, size_mib, loss }, scheme),
        args: [by],
      })),
    ),
  );
}

/** The best of a cell and the best of the other kind (parity or none; of the same kind where only one is compared):
 * {best, next, slower}, or null where no scheme has an answer. */
function judge(settings, answers) {
  const times = compared(settings)
    .map((scheme, i) => ({ scheme, time: answers[i].numbers?.[0] }))
    .filter(({ time }) => time !== undefined)
    .sort((a, b) => a.time - b.time);
  if (!times.length) return null;
  const best = times[0];
  const next = times.find(({ scheme }) => scheme.parity !== best.scheme.parity) ?? times[1];
  return { best, next, slower: next ? next.time / best.time : Infinity };
}

function describe(settings, row, column, found) {
  const place = `${bytes(SIZES_MIB[row] * 2 ** 20)}, loss ${plain(LOSSES[column])}`;
  if (!found) return `${place}: no scheme has an answer`;
  const best = `${place}: ${nameOf(found.best.scheme, settings)}, ${seconds(found.best.time)} (${settings.by})`;
  if (!found.next) return best;
  return `${best}; ${nameOf(found.next.scheme, settings)} takes ${ratio(found.slower)} as long`;
}

/** Builds the map. It calls `onMove({size_mib, loss})` when a user selects a cell. */
export function buildMap(onMove) {
  const cells = SIZES_MIB.map(() => LOSSES.map(() => make("td", { role: "gridcell", tabindex: "-1" })));
  const body = byId("map-body");
  body.append(
    ...cells.map((row, i) =>
      make(
        "tr",
        { role: "row" },
        make("th", { role: "rowheader", scope: "row" }, bytes(SIZES_MIB[i] * 2 ** 20)),
        ...row,
      ),
    ),
  );
  byId("map-foot").append(
    make(
      "tr",
      { role: "row" },
      make("td", {}),
      ...LOSSES.map((loss) => make("th", { role: "columnheader", scope: "col" }, plain(loss))),
    ),
  );
  let focus = [6, 5];
  const place = (target) => {
    for (const [row, list] of cells.entries()) {
      const column = list.indexOf(target?.closest?.("td"));
      if (column >= 0) return [row, column];
    }
    return null;
  };
  const aim = ([row, column], take) => {
    cells[focus[0]][focus[1]].tabIndex = -1;
    focus = [Math.min(16, Math.max(0, row)), Math.min(8, Math.max(0, column))];
    const cell = cells[focus[0]][focus[1]];
    cell.tabIndex = 0;
    if (take) cell.focus();
  };
  const tell = ([row, column]) => {
    byId("map-cell").textContent = cells[row][column].getAttribute("aria-label") ?? "";
  };
  const go = ([row, column]) => onMove({ size_mib: SIZES_MIB[row], loss: LOSSES[column] });
  body.addEventListener("click", (event) => {
    const at = place(event.target);
    if (!at) return;
    aim(at, true);
    go(at);
  });
  body.addEventListener("keydown", (event) => {
    const [row, column] = focus;
    const steps = {
      ArrowUp: [row - 1, column],
      ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1],
      Home: [row, 0],
      End: [row, 8],
      PageUp: [0, column],
      PageDown: [16, column],
    };
    if (steps[event.key]) aim(steps[event.key], true);
    else if (event.key === "Enter" || event.key === " ") go(focus);
    else return;
    event.preventDefault();
  });
  body.addEventListener("focusin", () => tell(focus));
  body.addEventListener("pointerover", (event) => tell(place(event.target) ?? focus));
  body.addEventListener("pointerleave", () => tell(focus));
  aim(focus, false);
  return { cells, aim, tell: () => tell(focus) };
}

/** Fills row `row` of the map from the answers to its batch. */
export function showRow(map, settings, row, answers) {
  const count = compared(settings).length;
  map.cells[row].forEach((cell, column) => {
    const found = judge(settings, answers.slice(column * count, (column + 1) * count));
    cell.className = found ? `scheme-${found.best.scheme.letter}${found.slower < TIE ? " tie" : ""}` : "none";
    cell.replaceChildren(found ? found.best.scheme.letter : "–");
    if (found?.next && found.slower >= TIE) cell.append(make("small", {}, digits(found.slower, 2)));
    cell.setAttribute("aria-label", describe(settings, row, column, found));
  });
}

/** Marks the current settings: with a frame at their place, or at the edge if they lie outside of the map. The
 * keyboard starts at the nearest cell. */
export function showPlace(map, settings) {
  const across = logScale(LOSSES[0], LOSSES.at(-1), 0, LOSSES.length - 1).at(settings.loss);
  const down = logScale(SIZES_MIB[0], SIZES_MIB.at(-1), 0, SIZES_MIB.length - 1).at(settings.size_mib);
  const frame = byId("map-frame");
  frame.hidden = !Number.isFinite(across) || !Number.isFinite(down);
  if (frame.hidden) return;
  const column = Math.min(LOSSES.length - 0.5, Math.max(-0.5, across));
  const row = Math.min(SIZES_MIB.length - 0.5, Math.max(-0.5, down));
  const first = map.cells[0][0];
  const last = map.cells.at(-1).at(-1);
  frame.style.width = `${first.offsetWidth + 4}px`;
  frame.style.height = `${first.offsetHeight + 4}px`;
  const cellWidth = (last.offsetLeft - first.offsetLeft) / (LOSSES.length - 1);
  const cellHeight = (last.offsetTop - first.offsetTop) / (SIZES_MIB.length - 1);
  frame.style.left = `${first.offsetLeft + first.offsetWidth / 2 + column * cellWidth}px`;
  frame.style.top = `${first.offsetTop + first.offsetHeight / 2 + row * cellHeight}px`;
  frame.classList.toggle("beyond", column !== across || row !== down);
  if (!byId("map-body").contains(document.activeElement)) map.aim([Math.round(down), Math.round(across)], false);
}
