//! Loss models: which datagrams are lost.

use core::time::Duration;

use thiserror::Error;

use crate::rng::Rng;
use crate::spells::Spells;

/// How a link loses datagrams, in addition to drops by a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent losses, all with the same probability.
    Iid {
        /// Probability that a datagram is lost.
        loss_packet: f64,
    },
    /// Bits that are wrong, all independently of each other. A datagram with a wrong bit is lost,
    /// so one of `n` bytes is lost with probability `1 - (1 - bit_error_rate)^(8 n)`, where `n`
    /// counts its IP header.
    BitErrors {
        /// Probability that a bit is wrong.
        bit_error_rate: f64,
    },
    /// Losses in bursts: a Markov chain of two states that steps once per datagram and starts in
    /// the good state (Gilbert 1960, Elliott 1963).
    ///
    /// The share of time in the bad state is `b = p_good_to_bad / (p_good_to_bad + p_bad_to_good)`,
    /// the mean loss `(1 - b) loss_good + b loss_bad`, and a stay in the bad state lasts
    /// `1 / p_bad_to_good` datagrams in the mean.
    Markov {
        /// Probability that the chain changes from the good to the bad state after a datagram.
        p_good_to_bad: f64,
        /// Probability that the chain changes from the bad to the good state after a datagram.
        p_bad_to_good: f64,
        /// Probability that a datagram is lost in the good state.
        loss_good: f64,
        /// Probability that a datagram is lost in the bad state.
        loss_bad: f64,
    },
    /// Losses in bursts of a mean duration: the same two states, which change with time and not
    /// with datagrams. So a path that is idle in a burst has recovered when the burst is over. The
    /// times in a state have an exponential distribution, and the chain starts in its long-run
    /// distribution. Losses are drawn at the time when the last bit of a datagram is sent.
    ///
    /// The share of time in the bad state is `b = mean_bad / (mean_good + mean_bad)`, and the mean
    /// loss `(1 - b) loss_good + b loss_bad`.
    MarkovInTime {
        /// Mean time of a stay in the good state, more than 0.
        mean_good: Duration,
        /// Mean time of a stay in the bad state, more than 0.
        mean_bad: Duration,
        /// Probability that a datagram is lost in the good state.
        loss_good: f64,
        /// Probability that a datagram is lost in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Loses a share `loss_packet` of all datagrams, which must be below 1, in runs with a mean
    /// length of `mean_burst`, which must be at least 1 and [possible](Self::possible_burst).
    #[must_use]
    pub fn in_bursts(loss_packet: f64, mean_burst: f64) -> Self {
        let p_bad_to_good = 1.0 / mean_burst;
        Self::Markov {
            // With this value, the share of time in the bad state is the mean loss. A rounding error can bring it above 1.
            p_good_to_bad: (p_bad_to_good * loss_packet / (1.0 - loss_packet)).min(1.0),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// The mean length of runs of losses if a share `loss` is lost, which must be below 1. One datagram arrives after
    /// each run, so the least one is `loss / (1 - loss)`. Lengths that are up to 1 % less may be rounded or measured, and
    /// become the least one.
    ///
    /// # Errors
    /// The length is less than that.
    pub fn possible_burst(loss: f64, mean_burst: f64) -> Result<f64, ShortBurst> {
        const ROUNDED: f64 = 0.99;
        let least = loss / (1.0 - loss);
        match mean_burst < least * ROUNDED {
            true => Err(ShortBurst { least }),
            false => Ok(mean_burst.max(least)),
        }
    }

    /// Loses all datagrams during bursts with a mean duration of `mean_burst`, which must not be 0.
    /// The bursts take a share `loss_packet` of the time, which must be below 1.
    #[must_use]
    pub fn in_timed_bursts(loss_packet: f64, mean_burst: Duration) -> Self {
        if loss_packet == 0.0 {
            return Self::None;
        }
        let mean_good_s = mean_burst.as_secs_f64() * (1.0 - loss_packet) / loss_packet;
        Self::MarkovInTime {
            mean_good: Duration::try_from_secs_f64(mean_good_s).unwrap_or(Duration::MAX),
            mean_bad: mean_burst,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

/// A mean length of bursts is too short for the share of datagrams that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("with this loss, a mean burst has at least loss / (1 - loss) losses, which is {least:.3}")]
pub struct ShortBurst {
    /// The least mean length.
    pub least: f64,
}

/// A running loss model.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    state: LossState,
    rng: Rng,
}

#[derive(Clone, Debug)]
enum LossState {
    None,
    Iid {
        loss_packet: f64,
    },
    BitErrors {
        /// The logarithm of the probability that a bit is right.
        ln_right: f64,
    },
    /// The chain of [`Loss::Markov`]. Arrays have the values of the good and of the bad state.
    Steps {
        leave: [f64; 2],
        loss: [f64; 2],
        bad: bool,
    },
    Time {
        spells: Spells,
        loss: [f64; 2],
    },
}

impl LossProcess {
    pub(crate) fn new(model: Loss, rng: Rng) -> Self {
        let state = match model {
            Loss::None => LossState::None,
            Loss::Iid { loss_packet } => LossState::Iid { loss_packet },
            Loss::BitErrors { bit_error_rate } => LossState::BitErrors {
                ln_right: libm::log1p(-bit_error_rate),
            },
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
            } => LossState::Steps {
                leave: [p_good_to_bad, p_bad_to_good],
                loss: [loss_good, loss_bad],
                bad: false,
            },
            Loss::MarkovInTime {
                mean_good,
                mean_bad,
                loss_good,
                loss_bad,
            } => LossState::Time {
                spells: Spells::new(mean_good, mean_bad),
                loss: [loss_good, loss_bad],
            },
        };
        Self { state, rng }
    }

    /// Whether the next datagram is lost, which has `ip_bytes`. Its last bit is sent at `now_ns`.
    pub(crate) fn next_is_lost(&mut self, now_ns: u64, ip_bytes: u64) -> bool {
        let rng = &mut self.rng;
        match &mut self.state {
            LossState::None => false,
            LossState::Iid { loss_packet } => rng.chance(*loss_packet),
            LossState::BitErrors { ln_right } => {
                #[allow(clippy::cast_precision_loss)] // Lengths of datagrams are far below 2^53.
                let bits = 8.0 * ip_bytes.max(1) as f64;
                rng.chance(-libm::expm1(bits * *ln_right))
            }
            LossState::Steps { leave, loss, bad } => {
                let now = usize::from(*bad);
                let lost = rng.chance(loss[now]);
                *bad ^= rng.chance(leave[now]);
                lost
            }
            LossState::Time { spells, loss } => {
                let bad = spells.is_bad_at(now_ns, rng);
                rng.chance(loss[usize::from(bad)])
            }
        }
    }
}
