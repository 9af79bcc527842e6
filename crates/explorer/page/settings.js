// The values of the inputs, and the link that contains them.

import { SCHEMES } from "./schemes.js";

const decades = (from, to, steps) => {
  const stops = [];
  for (let power = from; power < to; power += 1) {
    stops.push(...steps.map((step) => Number(`${step}e${power}`)));
  }
  return [...stops, Number(`1e${to}`)];
};
const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, i) => 2 ** (from + i));
const counts = (to) => Array.from({ length: to }, (_, i) => i + 1);

/** Inputs of numbers, in the order in which faults of the model refer to them. `stops` are those of the slider;
 * the text box takes any number. */
export const NUMBERS = [
  {
    key: "distance_km",
    label: "Distance",
    unit: "km",
    usual: 3750,
    stops: [...decades(1, 4, [1, 1.25, 1.5, 2, 2.5, 3, 3.75, 5, 6, 7.5]), 12500, 15000, 20000],
  },
  {
    key: "rate_gbps",
    label: "Rate",
    unit: "Gbit/s",
    usual: 400,
    stops: [1, 2, 5, 10, 25, 40, 50, 100, 200, 400, 800, 1600, 3200],
  },
  { key: "loss", label: "Loss", unit: "share of packets", usual: 1e-4, stops: decades(-9, -1, [1, 1.5, 2, 3, 5, 7]) },
  { key: "size_mib", label: "Message", unit: "MiB", usual: 128, stops: powers(-8, 20) },
  { key: "k", label: "k", unit: "data chunks of a group", usual: 32, stops: counts(64) },
  { key: "m", label: "m", unit: "parity chunks of a group", usual: 8, stops: counts(32) },
  { key: "packets", label: "Chunk", unit: "packets of 4 KiB", usual: 1, stops: powers(0, 6) },
];

const KM_PER_S = { vacuum: 300000, fibre: 204000 };
/** In the order of the model's numbers for them. */
const VARIANTS = ["paper", "serial"];
/** The values by which schemes are compared, in the order of the model's numbers for them. */
export const JUDGED_BY = ["mean", "p50", "p99", "p99.9"];

/** Inputs of words. The first word is the default. */
export const WORDS = [
  { key: "signal", words: Object.keys(KM_PER_S) },
  { key: "variant", words: VARIANTS },
  { key: "by", words: JUDGED_BY },
  { key: "view", words: ["survival", "cdf"] },
];

const ALL = SCHEMES.map((scheme) => scheme.letter).join("");
const MOST_CHARACTERS = 1000;

/** The settings that the page opens with. */
function usualSettings() {
  const settings = { compare: ALL };
  for (const { key, usual } of NUMBERS) settings[key] = usual;
  for (const { key, words } of WORDS) settings[key] = words[0];
  return settings;
}

/** The schemes that are compared. */
export function compared(settings) {
  return SCHEMES.filter((scheme) => settings.compare.includes(scheme.letter));
}

/** The row of numbers that the model's `set_question` takes. */
export function questionOf(settings, scheme) {
  return [
    scheme.number,
    settings.k,
    settings.m,
    settings.distance_km,
    KM_PER_S[settings.signal],
    settings.rate_gbps * 1e9,
    settings.loss,
    settings.size_mib * 2 ** 20,
    settings.packets,
    VARIANTS.indexOf(settings.variant),
  ];
}

/** Settings as the fragment of a link. */
export function toFragment(settings) {
  const pairs = [...NUMBERS, ...WORDS].map(({ key }) => `${key}=${settings[key]}`);
  return `#${[...pairs, `compare=${settings.compare}`].join("&")}`;
}

/** The value of `key` in `text`, or the problem with it. Ranges are the model's to judge. */
function valueOf(key, text) {
  const number = NUMBERS.find((input) => input.key === key);
  if (number) return readNumber(text);
  const word = WORDS.find((input) => input.key === key);
  if (word) {
    return word.words.includes(text) ? { value: text } : { problem: `must be ${word.words.join(" or ")}` };
  }
  if (key !== "compare") return { problem: "is not a setting" };
  const letters = [...ALL].filter((letter) => text.includes(letter)).join("");
  const known = [...text].every((letter) => ALL.includes(letter));
  return letters && known ? { value: letters } : { problem: `must be some of ${ALL}` };
}

/** The value of a number that someone typed, or the problem with it. */
export function readNumber(text) {
  const trimmed = text.trim();
  const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed) ? Number(trimmed) : NaN;
  return Number.isFinite(value) ? { value } : { problem: "must be a number, as 250 or 1e-4" };
}

/** Settings from the fragment of a link. Values that are missing or invalid get their defaults, and each invalid
 * one a note. */
export function fromFragment(fragment) {
  const settings = usualSettings();
  const notes = [];
  const body = fragment.replace(/^#/, "");
  if (body.length > MOST_CHARACTERS) {
    return { settings, notes: [`it has more than ${MOST_CHARACTERS} characters`] };
  }
  for (const [key, text] of new URLSearchParams(body)) {
    const { value, problem } = valueOf(key, text);
    if (problem) notes.push(`${key}=${text.slice(0, 40)}: ${problem}`);
    else settings[key] = value;
  }
  return { settings, notes };
}
