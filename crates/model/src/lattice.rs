//! Distributions on whole numbers, for instance the number of failed groups or of lost
//! transmissions.

/// A range of neighbouring counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountRange {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) mean: f64,
    /// Probability.
    pub(crate) weight: f64,
}

/// A distribution as blocks in ascending order. Each block is a single count, unless there are too
/// many counts.
pub(crate) type Lattice = Vec<CountRange>;

/// Weights below this, relative to the weight of the mode, are neglected, with all counts beyond
/// them.
const NEGLIGIBLE: f64 = 1e-22;
/// Lowest width of a block for which weights are computed block by block instead of count by count.
const MIN_STRIDE: f64 = 16.0;
/// Approximate width of a lattice in standard deviations, which follows from `NEGLIGIBLE`.
const SPAN: f64 = 20.0;

/// Probabilities of an event and of its complement, each with full relative precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Odds {
    pub(crate) fail: f64,
    pub(crate) ok: f64,
}

/// The distribution of the number of failures in `trials`.
pub(crate) fn binomial(trials: f64, odds: Odds, max_blocks: f64) -> Lattice {
    debug_assert!(odds.fail + odds.ok > 0.999, "{odds:?}");
    if trials < 1.0 || odds.fail <= 0.0 {
        return vec![single(0.0)];
    }
    if odds.ok <= 0.0 {
        return vec![single(trials)];
    }
    let ratio = odds.fail / odds.ok;
    let mode = ((trials + 1.0) * odds.fail).floor().min(trials);
    let deviation = (trials * odds.fail * odds.ok).sqrt();
    around(
        mode,
        |n| (trials - n) / (n + 1.0) * ratio,
        block_width(deviation, max_blocks),
    )
}

/// The distribution of the number of lost transmissions before `successes` are delivered. Each is
/// lost with probability `loss`.
pub(crate) fn negative_binomial(successes: f64, loss: f64, max_blocks: f64) -> Lattice {
    if successes < 1.0 || loss <= 0.0 {
        return vec![single(0.0)];
    }
    let mode = ((successes - 1.0) * loss / (1.0 - loss)).floor();
    let deviation = (successes * loss).sqrt() / (1.0 - loss);
    around(
        mode,
        |n| (successes + n) / (n + 1.0) * loss,
        block_width(deviation, max_blocks),
    )
}

/// A lattice from given weights of the counts from `first` on. Each weight has an absolute error of
/// `noise`.
pub(crate) fn from_weights(first: f64, weights: &[f64], noise: f64, max_blocks: f64) -> Lattice {
    let width = (crate::excess::float(weights.len()) / max_blocks)
        .ceil()
        .max(1.0);
    let mut blocks = Gather::new(width);
    let mut count = first;
    for &weight in weights {
        if weight > noise {
            blocks.push(count, weight);
        }
        count += 1.0;
    }
    blocks.blocks
}

fn single(count: f64) -> CountRange {
    CountRange {
        low: count,
        high: count,
        mean: count,
        weight: 1.0,
    }
}

fn block_width(deviation: f64, max_blocks: f64) -> f64 {
    (deviation * SPAN / max_blocks).ceil().max(1.0)
}

/// The distribution with this mode. `ratio(n)` is the weight of `n + 1` divided by the weight of
/// `n`.
fn around(mode: f64, ratio: impl Fn(f64) -> f64, width: f64) -> Lattice {
    let mut blocks = if width < MIN_STRIDE {
        by_steps(mode, ratio, width)
    } else {
        by_strides(mode, ratio, width)
    };
    let total: f64 = blocks.iter().map(|block| block.weight).sum();
    for block in &mut blocks {
        block.weight /= total;
    }
    blocks
}

/// Weights by recurrence from count to count, starting with 1 at the mode.
fn by_steps(mode: f64, ratio: impl Fn(f64) -> f64, width: f64) -> Lattice {
    let mut down = Gather::new(width);
    let mut count = mode;
    let mut weight = 1.0;
    while count > 0.0 {
        count -= 1.0;
        weight /= ratio(count);
        if weight < NEGLIGIBLE {
            break;
        }
        down.push(count, weight);
    }
    let mut blocks = down.blocks;
    blocks.reverse();
    let mut up = Gather::new(width);
    count = mode;
    weight = 1.0;
    loop {
        up.push(count, weight);
        let next = ratio(count);
        weight *= next;
        count += 1.0;
        // The remaining weights sum to at most weight / (1 - next).
        if weight <= NEGLIGIBLE * (1.0 - next) || weight.is_nan() {
            break;
        }
    }
    blocks.append(&mut up.blocks);
    blocks
}

/// Like `by_steps`, but from block to block, for weights that are smooth over many counts. Over a
/// block, the log of the weight changes by its slope in the middle; within a block, it is a
/// parabola.
fn by_strides(mode: f64, ratio: impl Fn(f64) -> f64, width: f64) -> Lattice {
    // The width is odd, so that the middle of a block is a count.
    let stride = 2.0 * (width / 2.0).floor() + 1.0;
    let half = (stride - 1.0) / 2.0;
    let slope = |n: f64| ratio(n).ln();
    let block = |middle: f64, weight: f64| {
        let tilt = slope(middle - 0.5);
        let bend = tilt * tilt + slope(middle) - slope(middle - 1.0);
        CountRange {
            low: middle - half,
            high: middle + half,
            mean: middle + (tilt * (stride * stride - 1.0) / 12.0).clamp(-half, half),
            weight: weight * stride * (1.0 + bend * (stride * stride - 1.0) / 24.0).max(0.0),
        }
    };
    let mut blocks = Vec::new();
    let (mut middle, mut weight) = (mode, 1.0);
    while middle - stride - half > 0.0 && weight > NEGLIGIBLE {
        middle -= stride;
        weight *= (-stride * slope(middle + half)).exp();
        blocks.push(block(middle, weight));
    }
    blocks.reverse();
    (middle, weight) = (mode, 1.0);
    while weight > NEGLIGIBLE {
        blocks.push(block(middle, weight));
        weight *= (stride * slope(middle + half)).exp();
        middle += stride;
    }
    blocks
}

/// Merges counts into blocks of `width`. Zero is always a block of its own.
struct Gather {
    width: f64,
    key: f64,
    blocks: Lattice,
}

impl Gather {
    fn new(width: f64) -> Self {
        Self {
            width,
            key: f64::NAN,
            blocks: Vec::new(),
        }
    }

    fn push(&mut self, count: f64, weight: f64) {
        let key = (count / self.width).ceil();
        match self.blocks.last_mut() {
            Some(block) if key == self.key => {
                block.low = block.low.min(count);
                block.high = block.high.max(count);
                block.weight += weight;
                block.mean += (count - block.mean) * weight / block.weight;
            }
            _ => {
                self.key = key;
                self.blocks.push(CountRange {
                    weight,
                    ..single(count)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(lattice: &Lattice) -> (f64, f64, f64) {
        let total: f64 = lattice.iter().map(|b| b.weight).sum();
        let mean: f64 = lattice.iter().map(|b| b.weight * b.mean).sum();
        let square: f64 = lattice
            .iter()
            .map(|b| b.weight * (b.mean - mean).powi(2))
            .sum();
        (total, mean, square)
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        for trials in [1.0, 10.0, 1e4, 1e8] {
            for fail in [1e-12, 1e-3, 0.5, 0.999] {
                let odds = Odds {
                    fail,
                    ok: 1.0 - fail,
                };
                let (total, mean, variance) = moments(&binomial(trials, odds, f64::INFINITY));
                assert!((total - 1.0).abs() < 1e-12);
                assert!(
                    (mean / (trials * fail) - 1.0).abs() < 1e-9,
                    "{trials} {fail} {mean}"
                );
                let want = trials * fail * (1.0 - fail);
                assert!(
                    (variance / want - 1.0).abs() < 1e-9,
                    "{trials} {fail} {variance}"
                );

                let loss = fail.min(0.5);
                let (total, mean, variance) =
                    moments(&negative_binomial(trials, loss, f64::INFINITY));
                assert!((total - 1.0).abs() < 1e-12);
                let want = trials * loss / (1.0 - loss);
                assert!((mean / want - 1.0).abs() < 1e-9, "{trials} {loss} {mean}");
                let want = want / (1.0 - loss);
                assert!(
                    (variance / want - 1.0).abs() < 1e-8,
                    "{trials} {loss} {variance}"
                );
            }
        }
    }

    #[test]
    fn small_cases_are_the_textbook_ones() {
        let odds = Odds {
            fail: 0.25,
            ok: 0.75,
        };
        let weights: Vec<f64> = binomial(2.0, odds, 999.0)
            .iter()
            .map(|b| b.weight)
            .collect();
        for (got, want) in weights.iter().zip([0.5625, 0.375, 0.0625]) {
            assert!((got - want).abs() < 1e-15);
        }
        let tries = negative_binomial(2.0, 0.25, 999.0);
        assert!((tries[3].weight - 4.0 * 0.25f64.powi(3) * 0.5625).abs() < 1e-15);
    }

    #[test]
    fn strides_agree_with_steps() {
        let odds = Odds {
            fail: 0.02,
            ok: 0.98,
        };
        let exact = [binomial(1e9, odds, 1e9), negative_binomial(3e6, 0.4, 1e9)];
        let coarse = [
            binomial(1e9, odds, 192.0),
            negative_binomial(3e6, 0.4, 192.0),
        ];
        for (exact, coarse) in exact.iter().zip(&coarse) {
            assert!(coarse.len() < 200 && exact.len() > 10_000);
            let mut counts = exact.iter().peekable();
            for block in coarse {
                let mut want = 0.0;
                while let Some(count) = counts.next_if(|count| count.low <= block.high) {
                    want += count.weight;
                }
                let off = (block.weight - want).abs();
                assert!(off < 1e-4 * want + 1e-12, "{block:?} {want}");
            }
        }
    }

    #[test]
    fn blocks_keep_mass_and_mean() {
        let odds = Odds { fail: 0.3, ok: 0.7 };
        let coarse = binomial(1e6, odds, 64.0);
        assert!(coarse.len() <= 70, "{}", coarse.len());
        let (total, mean, _) = moments(&coarse);
        assert!(
            (total - 1.0).abs() < 1e-12 && (mean - 3e5).abs() < 0.1,
            "{mean}"
        );
        for pair in coarse.windows(2) {
            assert!(pair[0].high < pair[1].low);
        }
        let coarse = from_weights(0.0, &[0.1; 10], 0.0, 2.0);
        assert_eq!((coarse[0].low, coarse[0].high), (0.0, 0.0));
        assert_eq!((coarse[1].low, coarse[1].high), (1.0, 5.0));
    }
}
