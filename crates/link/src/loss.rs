//! Which datagrams are lost.

use crate::dice::Dice;

/// How a link loses datagrams, apart from a full queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// Not at all.
    #[default]
    None,
    /// Each by itself, all with the same probability.
    Iid {
        /// Probability that a datagram is lost.
        loss_packet: f64,
    },
    /// In bursts: a chain of two states that steps once a datagram, starting in the good one
    /// (Gilbert 1960, Elliott 1963).
    ///
    /// The share of time in the bad state is `b = p_good_to_bad / (p_good_to_bad + p_bad_to_good)`,
    /// the mean loss `(1 - b) loss_good + b loss_bad`, and a stay in the bad state lasts
    /// `1 / p_bad_to_good` datagrams in the mean.
    Markov {
        /// Probability, after a datagram in the good state, that the next finds the bad one.
        p_good_to_bad: f64,
        /// Probability, after a datagram in the bad state, that the next finds the good one.
        p_bad_to_good: f64,
        /// Probability that a datagram is lost in the good state.
        loss_good: f64,
        /// Probability that a datagram is lost in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// A share `loss_packet` of all datagrams, below 1, in runs of `mean_burst` losses in the mean,
    /// 1 or more.
    #[must_use]
    pub fn in_bursts(loss_packet: f64, mean_burst: f64) -> Self {
        let p_bad_to_good = 1.0 / mean_burst;
        Self::Markov {
            // The share of time in the bad state is then the mean loss.
            p_good_to_bad: (p_bad_to_good * loss_packet / (1.0 - loss_packet)).min(1.0),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

/// A loss model under way.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    model: Loss,
    bad: bool,
    dice: Dice,
}

impl LossProcess {
    pub(crate) fn new(model: Loss, dice: Dice) -> Self {
        Self {
            model,
            bad: false,
            dice,
        }
    }

    /// Whether the next datagram is lost.
    pub(crate) fn next_is_lost(&mut self) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Iid { loss_packet } => self.dice.chance(loss_packet),
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
            } => {
                let (loss, leave) = if self.bad {
                    (loss_bad, p_bad_to_good)
                } else {
                    (loss_good, p_good_to_bad)
                };
                let lost = self.dice.chance(loss);
                self.bad ^= self.dice.chance(leave);
                lost
            }
        }
    }
}
