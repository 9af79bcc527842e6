//! The choice of repair for bytes that the path itself drops.

use crate::cost::{Cost, PPM};

/// The repair that keeps the share of missing bytes below a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RepairChoice {
    /// Waiting is enough: the path drops less than the target.
    #[default]
    Wait,
    /// Parity: m chunks for each k of data (`best-effort+ec-mds:k,m`).
    Parity {
        /// Data chunks of a group.
        k: u32,
        /// Parity chunks of a group.
        m: u32,
    },
    /// Repeats (`best-effort+sr`).
    Repeats {
        /// Number of rounds of repeats. Each takes a round trip.
        rounds: u32,
    },
    /// No repair meets the target within the bounds of the timeout.
    CannotBeMet {
        /// The lowest share of missing bytes that is possible within the bounds, in millionths.
        least_ppm: u32,
    },
}

/// Data chunks of a group.
const K: u32 = 32;
/// Numbers of parity chunks of a group that are considered. They are few because each is a scheme of
/// its own, and a queue pair accepts 16 different schemes of its peer.
const M: [u32; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, K];
/// Highest number of rounds of repeats that is considered.
const MOST_ROUNDS: u32 = 8;

/// What a repair may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) rtt: Cost,
    /// The most that an operation may cost.
    pub(crate) max: Cost,
    pub(crate) most_parity: u32,
    /// Whether the scheme of the operations may change.
    pub(crate) may_repair: bool,
    /// What a timeout adds to the time of the slowest operation, as for the warm-up.
    pub(crate) slack: Cost,
}

/// Most parity chunks of a group where the parity of a message of `chunks` chunks may be as long as the
/// message; `None`: messages of any length.
pub(crate) fn most_parity(chunks: Option<u32>) -> u32 {
    let groups = |chunks: u32| chunks.div_ceil(K).max(1);
    chunks.map_or(K, |chunks| chunks / groups(chunks))
}

impl Cost {
    /// Converts the cost of an operation with one repair to its estimated cost with another one.
    pub(crate) fn with_repair(self, from: RepairChoice, to: RepairChoice, rtt: Cost) -> Self {
        match from.is_same_repair(to) {
            true => self,
            false => to.cost(from.cost_without(self, rtt), rtt),
        }
    }
}

impl RepairChoice {
    /// Whether operations run in the same way with both. Without repair, the reason does not
    /// matter.
    pub(crate) fn is_same_repair(self, other: Self) -> bool {
        let is_none =
            |repair_choice| matches!(repair_choice, Self::Wait | Self::CannotBeMet { .. });
        self == other || is_none(self) && is_none(other)
    }

    /// Chooses the fastest repair within the limits that leaves at most `wanted_ppm` missing on a path
    /// that drops `loss_ppm`. An operation without repair costs `cost`.
    pub(crate) fn choose(loss_ppm: u64, wanted_ppm: u64, cost: Cost, limits: Limits) -> Self {
        let parity = M.into_iter().filter(|&m| m <= limits.most_parity);
        let parity = parity.map(|m| Self::Parity { k: K, m });
        let repeats = (1..=MOST_ROUNDS).map(|rounds| Self::Repeats { rounds });
        let (mut best, mut least_ppm) = (None, loss_ppm);
        for way in parity.chain(repeats).filter(|_| limits.may_repair) {
            let takes = way.cost(cost, limits.rtt);
            if takes > limits.max {
                continue;
            }
            let left_ppm = way.left_ppm(loss_ppm);
            least_ppm = least_ppm.min(left_ppm);
            if left_ppm <= wanted_ppm && best.is_none_or(|(_, of_best)| takes < of_best) {
                best = Some((way, takes));
            }
        }
        let least_ppm = u32::try_from(least_ppm).unwrap_or(u32::MAX);
        best.map_or(Self::CannotBeMet { least_ppm }, |(way, _)| way)
    }

    /// The cost, with this repair, of an operation that costs `cost` without it.
    pub(crate) fn cost(self, cost: Cost, rtt: Cost) -> Cost {
        match self {
            Self::Wait | Self::CannotBeMet { .. } => cost,
            Self::Parity { k, m } => cost.times(u64::from(k + m), u64::from(k.max(1))),
            Self::Repeats { rounds } => {
                Cost(cost.0.saturating_add(rtt.0.saturating_mul(rounds.into())))
            }
        }
    }

    /// The cost, without this repair, of an operation that costs `cost` with it.
    pub(crate) fn cost_without(self, cost: Cost, rtt: Cost) -> Cost {
        match self {
            Self::Wait | Self::CannotBeMet { .. } => cost,
            Self::Parity { k, m } => cost.times(u64::from(k), u64::from((k + m).max(1))),
            Self::Repeats { rounds } => {
                Cost(cost.0.saturating_sub(rtt.0.saturating_mul(rounds.into())))
            }
        }
    }

    /// The share of bytes that stays missing with this repair on a path that drops `loss_ppm`, both in
    /// millionths, rounded up. Losses are assumed to be independent; bursts longer than the
    /// interleaving leave more.
    #[must_use]
    pub fn left_ppm(self, loss_ppm: u64) -> u64 {
        match self {
            Self::Wait | Self::CannotBeMet { .. } => loss_ppm,
            Self::Parity { k, m } => beyond_parity_ppm(loss_ppm, k, m),
            Self::Repeats { rounds } => {
                let again = |left: u64, _| (left * loss_ppm).div_ceil(PPM);
                (0..rounds).fold(loss_ppm, again)
            }
        }
    }
}

/// Share of chunks that are lost and cannot be rebuilt: m or more of the other k + m - 1 chunks of
/// the group are lost too.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share from 0 to 1000000"
)]
fn beyond_parity_ppm(loss_ppm: u64, k: u32, m: u32) -> u64 {
    if loss_ppm == 0 || loss_ppm >= PPM {
        return loss_ppm;
    }
    let loss = loss_ppm as f64 / PPM as f64;
    let others = k + m - 1;
    // Probability that exactly 0, 1, 2 and so on are lost. Each follows from the previous one.
    let mut exactly = (0..others).fold(1.0, |product, _| product * (1.0 - loss));
    let mut fewer = 0.0;
    for lost in 0..m {
        fewer += exactly;
        exactly *= f64::from(others - lost) / f64::from(lost + 1) * loss / (1.0 - loss);
    }
    let left = (loss * (1.0 - fewer) * PPM as f64).clamp(0.0, loss_ppm as f64);
    let down = left as u64;
    down + u64::from(left - down as f64 > 1e-6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const MAX: Cost = Cost(u64::MAX);

    fn limits(rtt: Cost, max: Cost) -> Limits {
        let most_parity = most_parity(None);
        Limits {
            rtt,
            max,
            most_parity,
            may_repair: true,
            slack: Cost(0),
        }
    }

    #[test]
    fn parity_leaves_what_the_binomial_says() {
        // k = m = 1: both chunks are lost.
        assert_eq!(beyond_parity_ppm(100_000, 1, 1), 10_000);
        // One chunk is lost, and at least 2 of the 3 others: 0.1 (3 0.01 0.9 + 0.001).
        assert_eq!(beyond_parity_ppm(100_000, 2, 2), 2_800);
        assert_eq!(beyond_parity_ppm(0, 32, 8), 0);
        assert_eq!(beyond_parity_ppm(PPM, 32, 8), PPM);
        let rows = [(10_000, 1), (10_000, 2), (10_000, 8), (50_000, 8)];
        let left = rows.map(|(loss, m)| beyond_parity_ppm(loss, 32, m));
        assert!(
            left.windows(2).take(2).all(|two| two[0] > two[1]),
            "{left:?}"
        );
        assert!(left[2] <= 1 && (1..2_000).contains(&left[3]), "{left:?}");
    }

    #[test]
    fn the_quicker_of_parity_and_repeats_is_chosen() {
        let cost = Cost(1_000_000);
        let choose = |rtt, max| RepairChoice::choose(10_000, 500, cost, limits(rtt, max));
        // One round of repeats leaves 100 ppm, three parity chunks about 200 ppm.
        let near = choose(Cost(1_000), MAX);
        assert_eq!(near, RepairChoice::Repeats { rounds: 1 });
        let RepairChoice::Parity { k: 32, m } = choose(Cost(10_000_000), MAX) else {
            panic!("parity is quicker");
        };
        assert!(RepairChoice::Parity { k: 32, m }.left_ppm(10_000) <= 500);
        assert!(RepairChoice::Parity { k: 32, m: m - 1 }.left_ppm(10_000) > 500);
    }

    #[test]
    fn all_losses_together_need_few_schemes() {
        let losses = (1..1_000).map(|thousandths| thousandths * 1_000);
        let choose = |loss_ppm| RepairChoice::choose(loss_ppm, 500, Cost(1), limits(MAX, MAX));
        let parity = losses.filter_map(|loss_ppm| match choose(loss_ppm) {
            RepairChoice::Parity { k, m } => Some((k, m)),
            _ => None,
        });
        let mut schemes: Vec<_> = parity.collect();
        schemes.dedup();
        assert!(schemes.is_sorted(), "more loss needs more parity");
        // Beside them there are the scheme without repair and the one with repeats.
        assert!((5..=14).contains(&schemes.len()), "{schemes:?}");
    }

    #[test]
    fn parity_is_no_longer_than_a_message() {
        let most = [1, 31, 32, 33, 48, 64, 512].map(|chunks| most_parity(Some(chunks)));
        assert_eq!(most, [1, 31, 32, 16, 24, 32, 32]);
        let choose = |most_parity| {
            let limits = Limits {
                most_parity,
                ..limits(Cost(1_000_000), MAX)
            };
            RepairChoice::choose(350_000, 10_000, Cost(1), limits)
        };
        let parity = |m| RepairChoice::Parity { k: K, m };
        assert_eq!(choose(32), parity(32));
        assert!(matches!(choose(24), RepairChoice::Repeats { .. }));
    }

    #[test]
    fn a_scheme_that_does_not_change_gets_no_repair() {
        let fixed = Limits {
            may_repair: false,
            ..limits(Cost(1_000), MAX)
        };
        let repair_choice = RepairChoice::choose(10_000, 500, Cost(1_000_000), fixed);
        assert_eq!(
            repair_choice,
            RepairChoice::CannotBeMet { least_ppm: 10_000 }
        );
    }

    #[test]
    fn what_does_not_fit_the_bounds_cannot_be_met() {
        let cost = Cost(1_000_000);
        let choose =
            |loss_ppm, rtt, max| RepairChoice::choose(loss_ppm, 500, cost, limits(rtt, max));
        let tight = choose(10_000, Cost(10_000_000), Cost(1_040_000));
        // One parity chunk fits the bounds, but leaves too much.
        let least_ppm = RepairChoice::Parity { k: 32, m: 1 }.left_ppm(10_000);
        let least_ppm = u32::try_from(least_ppm).unwrap();
        assert_eq!(tight, RepairChoice::CannotBeMet { least_ppm });
        let none = choose(10_000, Cost(10_000_000), cost);
        assert_eq!(none, RepairChoice::CannotBeMet { least_ppm: 10_000 });
        let dead = choose(PPM, Cost(1), MAX);
        assert_eq!(
            dead,
            RepairChoice::CannotBeMet {
                least_ppm: 1_000_000
            }
        );
    }
}
