//! The cost of a candidate, and which candidate to use next.

use farwrite::SchemeName;

use farwrite_units::show::real;

/// The scheme changes only if that saves more than this share of the remaining time.
const HYSTERESIS: f64 = 0.10;
/// Among schemes this close together, the one with less parity wins.
const CLOSE: f64 = 0.01;

/// What a candidate costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// The candidate.
    pub scheme: SchemeName,
    /// The mean time until a message is complete.
    pub message_s: f64,
    /// The time until 99 of 100 messages are complete.
    pub p99_s: f64,
    /// The time until the next message may leave.
    pub injection_s: f64,
    /// Parity bytes per byte of the message.
    pub parity_overhead: f64,
    /// Number of cores at each end that code at the rate of the path.
    pub cores: f64,
}

impl Cost {
    /// The time until this number of messages is complete, if `slots` of them can be in flight.
    #[must_use]
    pub fn rest_s(&self, messages: u64, slots: u32) -> f64 {
        let period_s = self.injection_s.max(self.message_s / f64::from(slots));
        real(messages.saturating_sub(1)) * period_s + self.message_s
    }
}

/// The candidate to use next: the current one, unless another saves enough.
pub(crate) fn settle(
    costs: &[Cost],
    current: Option<SchemeName>,
    left: u64,
    slots: u32,
) -> Option<&Cost> {
    let rest_s = |cost: &Cost| cost.rest_s(left, slots);
    let least_s = costs.iter().map(rest_s).fold(f64::INFINITY, f64::min);
    let in_use = costs.iter().find(|cost| Some(cost.scheme) == current);
    if let Some(in_use) = in_use
        && rest_s(in_use) <= least_s * (1.0 + HYSTERESIS)
    {
        return Some(in_use);
    }
    let near = costs
        .iter()
        .filter(|cost| rest_s(cost) <= least_s * (1.0 + CLOSE));
    near.min_by(|x, y| {
        let parity = x.parity_overhead.total_cmp(&y.parity_overhead);
        parity.then(x.cores.total_cmp(&y.cores))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(times_s: [f64; 2]) -> Vec<Cost> {
        let names = [SchemeName::SrNack, SchemeName::EXACT[4]];
        let both = names.into_iter().zip(times_s).zip([0.0, 0.25]);
        both.map(|((scheme, message_s), parity_overhead)| Cost {
            scheme,
            message_s,
            p99_s: message_s,
            injection_s: 0.01 * (1.0 + parity_overhead),
            parity_overhead,
            cores: 0.0,
        })
        .collect()
    }

    #[test]
    fn a_scheme_is_left_only_for_one_that_saves_enough() {
        let [repeat, coded] = [SchemeName::SrNack, SchemeName::EXACT[4]];
        // Times of one message with each, the current one, the expected one.
        for (times_s, current, want) in [
            ([1.0, 1.0], None, repeat),
            ([1.005, 1.0], None, repeat),
            ([1.02, 1.0], None, coded),
            ([1.09, 1.0], Some(repeat), repeat),
            ([1.11, 1.0], Some(repeat), coded),
            ([1.0, 1.09], Some(coded), coded),
            ([1.0, 1.11], Some(coded), repeat),
        ] {
            let settled = settle(&costs(times_s), current, 1, 8).map(|cost| cost.scheme);
            assert_eq!(settled, Some(want), "{times_s:?} {current:?}");
        }
        assert_eq!(settle(&[], Some(coded), 1, 8), None);
    }

    #[test]
    fn where_much_is_left_parity_costs_more_than_a_round_trip() {
        let costs = costs([0.06, 0.04]);
        let [repeat, coded] = [SchemeName::SrNack, SchemeName::EXACT[4]];
        let chosen = |left, slots| settle(&costs, None, left, slots).map(|cost| cost.scheme);
        assert_eq!(chosen(1, 8), Some(coded));
        assert_eq!(chosen(1000, 8), Some(repeat));
        // If the slots delay the messages, the quicker scheme wins again.
        assert_eq!(chosen(1000, 2), Some(coded));
    }
}
