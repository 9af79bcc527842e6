// Numbers as people read them.

/** `value` with three significant digits, without an exponent where it is of ordinary size. */
export function digits(value, count = 3) {
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) {
    return value.toExponential(count - 1).replace(/\.?0*e\+?/, "e");
  }
  const rounded = Number(value.toPrecision(count));
  const decimals = value === 0 ? 0 : Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(rounded))));
  return rounded.toFixed(Math.min(decimals, 8));
}

function scaled(value, units, count) {
  const about = Math.max(value, Number(value.toPrecision(count)));
  const [size, unit] = units.find(([least]) => about >= least) ?? units[units.length - 1];
  return `${digits(value / size, count)} ${unit}`;
}

const TIMES = [
  [3600, "h"],
  [1, "s"],
  [1e-3, "ms"],
  [1e-6, "µs"],
  [1e-9, "ns"],
];
const SIZES = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
  [1, "B"],
];

/** Seconds, such as "25.1 ms". */
export function seconds(value, count = 4) {
  return scaled(value, TIMES, count);
}

/** Bytes, such as "128 MiB". */
export function bytes(value) {
  return scaled(value, SIZES, 3)
    .replace(/(\.\d*?)0+ /, "$1 ")
    .replace(". ", " ");
}

/** A number in its shortest form, such as "1e-4" or "3750". */
export function plain(value) {
  const text = String(value);
  const exponent = value.toExponential().replace("e+", "e");
  return value !== 0 && (value < 0.01 || value >= 1e5) && exponent.length < text.length ? exponent : text;
}

/** A ratio of times, such as "3.10×". */
export function ratio(value) {
  return `${digits(value)}×`;
}
