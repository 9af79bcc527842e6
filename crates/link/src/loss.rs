//! Loss models: which datagrams are lost.

use crate::dice::Dice;

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
}

impl Loss {
    /// Loses a share `loss_packet` of all datagrams, which must be below 1, in runs with a mean
    /// length of `mean_burst`, which must be at least 1.
    #[must_use]
    pub fn in_bursts(loss_packet: f64, mean_burst: f64) -> Self {
        let p_bad_to_good = 1.0 / mean_burst;
        Self::Markov {
            // With this value, the share of time in the bad state is the mean loss.
            p_good_to_bad: (p_bad_to_good * loss_packet / (1.0 - loss_packet)).min(1.0),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

/// A running loss model.
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
