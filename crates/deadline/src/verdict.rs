//! What to do about bytes that the path itself drops.

use crate::cost::{Cost, PPM};

/// What keeps the share of missing bytes below a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
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
    /// Repeats (`best-effort+sr`), in a number of round trips.
    Repeats {
        /// Rounds of repeats, each a round trip.
        rounds: u32,
    },
    /// Nothing keeps it within the bounds of the timeout.
    CannotBeMet {
        /// The least share of missing bytes that can be had within the bounds, in millionths.
        least_ppm: u32,
    },
}

/// Data chunks of a group.
const K: u32 = 32;
/// Rounds of repeats that are considered.
const MOST_ROUNDS: u32 = 8;

impl Verdict {
    /// The repair that takes the least time, at most `max`, and leaves at most `wanted_ppm` missing
    /// where the path drops `loss_ppm`. An operation costs `cost` and a round trip costs `rtt`.
    pub(crate) fn choose(
        loss_ppm: u64,
        wanted_ppm: u64,
        cost: Cost,
        [rtt, max]: [Cost; 2],
    ) -> Self {
        let parity = (1..=K).map(|m| Self::Parity { k: K, m });
        let repeats = (1..=MOST_ROUNDS).map(|rounds| Self::Repeats { rounds });
        let (mut best, mut least_ppm) = (None, loss_ppm);
        for way in parity.chain(repeats) {
            let takes = way.cost(cost, rtt);
            if takes > max {
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

    /// What is left missing of what the path drops, in millionths, rounded up. Losses count as
    /// independent of each other: bursts that are longer than the interleaving leave more.
    pub(crate) fn left_ppm(self, loss_ppm: u64) -> u64 {
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

/// Share of chunks that are lost and cannot be rebuilt, because m or more of the other k + m - 1
/// chunks of their group are lost too.
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
    // Probability that none is lost, one, two and so on: each follows from the one before.
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

    const MAX: Cost = Cost(u64::MAX);

    #[test]
    fn parity_leaves_what_the_binomial_says() {
        // One of two: the other is lost too.
        assert_eq!(beyond_parity_ppm(100_000, 1, 1), 10_000);
        // Lost, and at least 2 of the 3 others: 0.1 (3 0.01 0.9 + 0.001).
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
        let choose = |rtt, max| Verdict::choose(10_000, 500, cost, [rtt, max]);
        // A round of repeats leaves 100 ppm, three chunks of parity 200 or so.
        let near = choose(Cost(1_000), MAX);
        assert_eq!(near, Verdict::Repeats { rounds: 1 });
        let Verdict::Parity { k: 32, m } = choose(Cost(10_000_000), MAX) else {
            panic!("parity is quicker");
        };
        assert!(Verdict::Parity { k: 32, m }.left_ppm(10_000) <= 500);
        assert!(Verdict::Parity { k: 32, m: m - 1 }.left_ppm(10_000) > 500);
    }

    #[test]
    fn what_does_not_fit_the_bounds_cannot_be_met() {
        let cost = Cost(1_000_000);
        let tight = Verdict::choose(10_000, 500, cost, [Cost(10_000_000), Cost(1_040_000)]);
        // One chunk of parity fits, and leaves too much.
        let least_ppm = Verdict::Parity { k: 32, m: 1 }.left_ppm(10_000);
        let least_ppm = u32::try_from(least_ppm).unwrap();
        assert_eq!(tight, Verdict::CannotBeMet { least_ppm });
        let none = Verdict::choose(10_000, 500, cost, [Cost(10_000_000), cost]);
        assert_eq!(none, Verdict::CannotBeMet { least_ppm: 10_000 });
        let dead = Verdict::choose(PPM, 500, cost, [Cost(1), MAX]);
        assert_eq!(
            dead,
            Verdict::CannotBeMet {
                least_ppm: 1_000_000
            }
        );
    }
}
