//! The excess of selective repeat with i.i.d. loss: the time of a message beyond its injection.
//!
//! Times are in slots: one slot is the injection of one chunk. A message of `chunks` chunks is
//! injected in `chunks` slots. The excess is its completion time minus the round trip and minus
//! these slots. `docs/model.md` section 3 has the derivation.

/// A mean excess in slots, with bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Mean {
    pub(crate) low: f64,
    pub(crate) middle: f64,
    pub(crate) high: f64,
}

/// A mean excess in two parts: for a Markov chain that was good before the first chunk, and for one
/// that was bad. With i.i.d. loss, the second part is zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts(pub(crate) [Mean; 2]);

impl Parts {
    /// The mean if the probabilities of good and bad are multiplied by `state_ratios`.
    pub(crate) fn weighted(self, state_ratios: [f64; 2]) -> Mean {
        let sum = |part: fn(&Mean) -> f64| {
            state_ratios[0] * part(&self.0[0]) + state_ratios[1] * part(&self.0[1])
        };
        Mean {
            low: sum(|mean| mean.low),
            middle: sum(|mean| mean.middle),
            high: sum(|mean| mean.high),
        }
    }
}

/// The distribution of the excess, for messages of any length on one path.
#[derive(Clone, Debug)]
pub(crate) struct IidExcess {
    /// Slots from one transmission of a chunk to the next, `1 + RTO / T_inj`.
    period: f64,
    /// `missing[a - 1]`: the probability that a chunk is missing after `a` transmissions, up to
    /// negligible values.
    missing: Vec<f64>,
    /// `steps[a - 1] = ln(1 - missing[a]) - ln(1 - missing[a - 1])`.
    steps: Vec<f64>,
}

impl IidExcess {
    /// `missing`: the probability that a chunk is missing after 1, 2, ... transmissions, each below
    /// 1 and below the one before it ([`Attempts`](crate::attempts::Attempts)).
    pub(crate) fn new(missing: Vec<f64>, period: f64) -> Self {
        let later = missing.iter().skip(1).chain([&0.0]);
        let step = |(now, later): (&f64, &f64)| ((now - later) / (1.0 - now)).ln_1p();
        Self {
            steps: missing.iter().zip(later).map(step).collect(),
            missing,
            period,
        }
    }

    /// The log of the probability that a chunk has arrived after `a` transmissions.
    fn log_delivered(&self, a: usize) -> f64 {
        (-self.missing[a - 1]).ln_1p()
    }

    /// Log of the probability that a message of `chunks` chunks has an excess of at most `slots`.
    pub(crate) fn log_cdf(&self, chunks: f64, slots: f64) -> f64 {
        if slots < 0.0 {
            return f64::NEG_INFINITY;
        }
        let first = (slots / self.period).floor();
        if first >= float(self.steps.len()) {
            return 0.0;
        }
        let mut log = 0.0;
        for a in index(first) + 1..=self.steps.len() {
            // The number of chunks that have been sent at most `a` times.
            let count = (float(a) * self.period - slots).ceil();
            if count >= chunks {
                return log + chunks * self.log_delivered(a);
            }
            log -= self.steps[a - 1] * count.max(0.0);
        }
        log
    }

    /// Mean excess in slots of a message of `chunks` whole chunks.
    ///
    /// An event is a slot at which one of the counts in `log_cdf` starts or stops to change.
    /// Between events, `log_cdf` is linear in the slot, so each interval sums as a geometric
    /// series.
    pub(crate) fn mean(&self, chunks: f64) -> f64 {
        if chunks < 1.0 || self.steps.is_empty() {
            return 0.0;
        }
        let mut events = vec![0.0];
        for a in 1..=self.steps.len() {
            let end = float(a) * self.period;
            events.push(end);
            if end > chunks {
                events.push(end - chunks);
            }
        }
        events.sort_unstable_by(f64::total_cmp);
        let mut sum = 0.0;
        let mut phases = Vec::new();
        for pair in events.windows(2) {
            sum += self.stretch(chunks, pair[0], pair[1], &mut phases);
        }
        sum
    }

    /// Integral of the survival function over `[begin, end)`, which must not contain an event.
    fn stretch(&self, chunks: f64, begin: f64, end: f64, phases: &mut Vec<(f64, f64)>) -> f64 {
        let length = end - begin;
        if length <= 0.0 {
            return 0.0;
        }
        let middle = begin + length / 2.0;
        phases.clear();
        // Log of the cdf at slot 0, before the steps within the slot.
        let mut log = 0.0;
        // Growth of the log per slot.
        let mut growth = 0.0;
        let first = index((middle / self.period).floor()) + 1;
        for a in first..=self.steps.len() {
            let left = float(a) * self.period - begin;
            if float(a) * self.period - middle >= chunks {
                log += chunks * self.log_delivered(a);
                break;
            }
            let step = self.steps[a - 1];
            let whole = left.floor();
            log -= step * (whole + 1.0);
            growth += step;
            phases.push((left - whole, step));
        }
        phases.sort_unstable_by(|x, y| x.0.total_cmp(&y.0));
        phases.push((1.0, 0.0));
        let slots = length.floor();
        let part = length - slots;
        let mut sum = 0.0;
        let mut from = 0.0;
        for &(until, step) in phases.iter() {
            if until > from {
                sum += (until - from) * series(log, growth, slots);
                let rest = until.min(part) - from;
                if rest > 0.0 {
                    sum -= rest * (log + growth * slots).min(0.0).exp_m1();
                }
            }
            log += step;
            from = until;
        }
        sum
    }
}

/// `sum of 1 - exp(log + q growth)` over `q = 0..n`, for exponents of at most zero.
fn series(log: f64, growth: f64, n: f64) -> f64 {
    if n < 1.0 {
        return 0.0;
    }
    let log = log.min(0.0);
    if growth <= 0.0 {
        return -n * log.exp_m1();
    }
    let last = (log + (n - 1.0) * growth).min(0.0);
    if log > -1e-3 {
        // Direct evaluation would suffer from cancellation. Use power sums around the middle, to
        // the fourth order.
        let middle = (log + last) / 2.0;
        let square = middle * middle;
        let spread2 = growth * growth * (n * n - 1.0) / 12.0;
        let spread4 = growth.powi(4) * (n * n - 1.0) * (3.0 * n * n - 7.0) / 240.0;
        let second = square + spread2;
        let third = middle * (square + 3.0 * spread2);
        let fourth = square * square + 6.0 * square * spread2 + spread4;
        return -n * (middle + second / 2.0 + third / 6.0 + fourth / 24.0);
    }
    n - last.exp() * (-n * growth).exp_m1() / (-growth).exp_m1()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of rounds, far below 2^53"
)]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; callers compare first"
)]
pub(crate) fn index(count: f64) -> usize {
    count as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attempts::Attempts;

    fn excess(loss: f64, period: f64, chunks: f64) -> IidExcess {
        IidExcess::new(Attempts::new(loss, 1.0).all_missing(chunks), period)
    }

    /// Computes the definition: a product over chunks.
    fn log_cdf_by_chunk(loss: f64, period: f64, chunks: u32, slots: f64) -> f64 {
        (0..chunks)
            .map(|j| {
                let sent = 1.0 + ((slots + f64::from(j)) / period).floor();
                (-loss.powf(sent)).ln_1p()
            })
            .sum()
    }

    #[test]
    fn cdf_is_the_product_over_chunks() {
        for loss in [1e-9, 1e-3, 0.1, 0.5, 0.9] {
            for period in [1.0, 1.3, 7.25, 40.0] {
                let excess = excess(loss, period, 50.0);
                for chunks in [1, 2, 7, 50] {
                    for step in 0..400 {
                        let slots = f64::from(step) * 0.37 + 0.011;
                        let want = log_cdf_by_chunk(loss, period, chunks, slots);
                        let got = excess.log_cdf(f64::from(chunks), slots);
                        assert!(
                            (got - want).abs() <= 1e-12 * want.abs() + 1e-17,
                            "loss {loss} period {period} chunks {chunks} slots {slots}: {got} {want}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn mean_is_the_integral_of_the_survival_function() {
        for loss in [1e-9, 1e-3, 0.1, 0.5, 0.9] {
            for period in [1.0, 1.3, 7.25, 40.0] {
                let excess = excess(loss, period, 50.0);
                for chunks in [1.0, 2.0, 7.0, 50.0] {
                    // All steps lie at multiples of 1/20 slot. Sample between them.
                    let survival =
                        |n: u32| -excess.log_cdf(chunks, (f64::from(n) + 0.5) / 20.0).exp_m1();
                    let want: f64 = (0..400_000).map(survival).sum::<f64>() / 20.0;
                    let got = excess.mean(chunks);
                    assert!(
                        (got - want).abs() <= 1e-11 * want,
                        "loss {loss} period {period} chunks {chunks}: {got} {want}"
                    );
                }
            }
        }
    }

    #[test]
    fn extremes_stay_finite() {
        for loss in [0.0, 1e-300, 1e-12, 0.5, 0.99] {
            for period in [1.0, 2.5, 1e6, 1e12, 1e27] {
                for chunks in [1.0, 1e5, 2.7e8, 1e12] {
                    let mean = excess(loss, period, chunks).mean(chunks);
                    assert!(
                        mean.is_finite() && mean >= 0.0,
                        "{loss} {period} {chunks}: {mean}"
                    );
                }
            }
        }
    }
}
