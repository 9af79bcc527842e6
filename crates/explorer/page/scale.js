// Conversions between values and positions on the screen.

/** Logarithmic: `low` lies at `from`, `high` at `to`. */
export function logScale(low, high, from, to) {
  const span = Math.log(high / low);
  return {
    at: (value) => from + ((to - from) * Math.log(value / low)) / span,
    value: (at) => low * Math.exp((span * (at - from)) / (to - from)),
  };
}

/** Linear: `low` lies at `from`, `high` at `to`. */
export function linearScale(low, high, from, to) {
  return {
    at: (value) => from + ((to - from) * (value - low)) / (high - low),
    value: (at) => low + ((high - low) * (at - from)) / (to - from),
  };
}

/** Round values within [low, high] for the ticks of a logarithmic axis, at most about `most`. */
export function logTicks(low, high, most) {
  const decades = Math.log10(high / low);
  for (const steps of [[1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      ticks.push(...steps.map((step) => Number(`${step}e${power}`)));
    }
    const inside = ticks.filter((tick) => tick >= low && tick <= high);
    if (inside.length <= most) {
      return inside.length >= 3 ? inside : linearTicks(low, high, most);
    }
  }
  const stride = Math.ceil(decades / most);
  const ticks = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += stride) {
    ticks.push(Number(`1e${power}`));
  }
  return ticks;
}

/** Round values within [low, high], evenly spaced, at most about `most`. */
function linearTicks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((size) => size * power >= rough) ?? 10);
  const ticks = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) {
    ticks.push(Number((n * step).toPrecision(12)));
  }
  return ticks;
}
