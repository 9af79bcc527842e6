// Puts the page together: settings in, questions to the model, answers onto the page.

import { buildControls } from "./controls.js";
import { costBatches, showCost, showSlowdowns, verdict } from "./cost.js";
import { curveJobs, figureJobs, readFigures, readPath, showCurves, showFigures } from "./curves.js";
import { byId, make, swatch } from "./dom.js";
import { startEngine } from "./engine.js";
import { bytes, digits, plain, seconds } from "./format.js";
import { buildMap, mapBatches, showPlace, showRow } from "./map.js";
import { SCHEMES } from "./schemes.js";
import { fromFragment, toFragment } from "./settings.js";

const SETTLE_MS = 60;

const fail = (words) => {
  byId("failure").textContent = `The model cannot run here: ${words}.`;
  byId("failure").hidden = false;
};
const wasm = Uint8Array.from(atob(byId("wasm").textContent.trim()), (c) => c.charCodeAt(0));
const [here, afar] = [0, 1].map(() => startEngine(byId("worker").textContent, wasm, fail));

let settings = null;
let redraw = () => {};
let timer = 0;

/** Computes all answers about `settings`, those at the top of the page first. */
async function update() {
  const asked = settings;
  let figures = [];
  const mapped = updateMap(asked);
  const figured = await here.ask([figureJobs(asked)], (answers) => {
    figures = readFigures(asked, answers);
    controls.fault(figures.flatMap((entry) => entry.fault ?? []));
    showPath(asked, readPath(answers));
    showFigures(asked, figures);
  });
  if (!figured) return;
  const jobs = curveJobs(asked, figures);
  let curves = [];
  const rows = [];
  let columns = [];
  const curved = await here.ask([jobs, ...costBatches(asked)], (answers, index) => {
    if (index === 0) {
      curves = answers;
      if (jobs.length) showCurves(asked, figures, curves);
      byId("curves").classList.toggle("empty", !jobs.length);
    } else if (index === 1) {
      columns = showCost(asked, figures, answers);
      byId("verdict").textContent = verdict(asked, figures, columns);
    } else {
      rows.push(answers);
    }
  });
  if (!curved) return;
  redraw = () => {
    if (jobs.length) showCurves(asked, figures, curves);
    showSlowdowns(asked, figures, rows);
    showPlace(map, asked);
  };
  showSlowdowns(asked, figures, rows);
  if (await mapped) document.body.dataset.answered = toFragment(asked);
}

/** Computes the map, unless it has not changed. */
async function updateMap(asked) {
  showPlace(map, asked);
  const key = toFragment({ ...asked, loss: 0, size_mib: 0, view: "" });
  if (key === map.key) {
    map.tell();
    return true;
  }
  map.key = "";
  const begun = performance.now();
  const done = await afar.ask(mapBatches(asked), (answers, row) => showRow(map, asked, row, answers));
  if (!done) return false;
  map.key = key;
  map.tell();
  byId("map-took").textContent =
    `${map.cells.length * map.cells[0].length} cells in ${digits(performance.now() - begun, 2)} ms`;
  byId("map-by").textContent = asked.by;
  return true;
}

/** Shows beside the inputs what they mean. */
function showPath(asked, path) {
  controls.note("distance_km", path ? `${seconds(path.rtt, 3)} round trip` : "");
  controls.note(
    "size_mib",
    path ? `${bytes(asked.size_mib * 2 ** 20)}; ${seconds(path.lossless, 3)} without loss` : "",
  );
  controls.note("packets", path ? `${bytes(path.chunkBytes)} a chunk` : "");
  controls.note("loss", path ? `${plain(Number(path.lossChunk.toPrecision(3)))} of chunks` : "");
  controls.note("m", `${digits((100 * asked.m) / asked.k)} % more data`);
}

function showLink() {
  const fragment = toFragment(settings);
  history.replaceState(null, "", fragment);
  byId("link").value = location.href;
}

function change(next) {
  settings = next;
  delete document.body.dataset.answered;
  clearTimeout(timer);
  timer = setTimeout(() => {
    showLink();
    update();
  }, SETTLE_MS);
}

/** Takes the settings of the page's own link. */
function load() {
  const { settings: read, notes } = fromFragment(location.hash);
  byId("notes").hidden = !notes.length;
  byId("notes").textContent = `The link could not be read whole, and the usual settings stand in: ${notes.join("; ")}.`;
  controls.set(read);
  change(read);
}

async function copyLink() {
  byId("link").select();
  try {
    await navigator.clipboard.writeText(byId("link").value);
    byId("copied").textContent = "Copied.";
  } catch {
    byId("copied").textContent = "Press Ctrl+C to copy.";
  }
}

const controls = buildControls(null, change);
const map = buildMap((part) => {
  controls.set({ ...settings, ...part });
  change({ ...settings, ...part });
});
byId("map-legend").append(
  ...SCHEMES.map((scheme) => make("span", {}, swatch(scheme), make("code", {}, scheme.name("k", "m")))),
);
byId("copy").addEventListener("click", copyLink);
byId("reset").addEventListener("click", () => {
  history.replaceState(null, "", "#");
  load();
});
addEventListener("hashchange", load);
addEventListener("resize", () => redraw());
load();
