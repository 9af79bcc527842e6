//! Loss models of chunks.

use crate::error::{ModelError, Wanted, positive, within};

/// The highest mean loss of the model.
const MAX_LOSS: f64 = 0.99;

/// A loss model of chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// Independent losses, all with the same probability (paper section 4.2.1).
    Iid {
        /// Probability that a chunk is lost, 0 to 0.99.
        loss_chunk: f64,
        /// Number of packets in a chunk, 1 to 2^20. With [`Variant::Protocol`](crate::Variant),
        /// control messages are lost like one packet, and the receiver keeps the packets of a chunk
        /// that have arrived, so a repeated chunk needs only the others. The other variants have the
        /// chunk as their unit, as the paper does.
        packets_per_chunk: u32,
    },
    /// Losses in bursts: a Markov chain of two states that steps once per packet and starts in its
    /// long-run distribution (Gilbert 1960, Elliott 1963). A chunk is lost if any of its packets is
    /// lost.
    Markov {
        /// Probability that the chain changes from the good to the bad state after a packet.
        p_good_to_bad: f64,
        /// Probability that the chain changes from the bad to the good state after a packet.
        p_bad_to_good: f64,
        /// Probability that a packet is lost in the good state.
        loss_good: f64,
        /// Probability that a packet is lost in the bad state.
        loss_bad: f64,
        /// Number of packets in a chunk, 1 to 2^20.
        packets_per_chunk: u32,
    },
}

/// Most packets of a chunk. The computation takes a step for each packet.
const MAX_PACKETS: f64 = 1_048_576.0;

/// Probability that a chunk of `packets` packets is lost, with independent losses of packets: `1 -
/// (1 - loss_packet)^packets` (paper section 5.4).
///
/// # Errors
///
/// `loss_packet` must be 0 to 1, `packets` at least 1.
pub fn chunk_loss(loss_packet: f64, packets: u32) -> Result<f64, ModelError> {
    probability("loss_packet", loss_packet)?;
    within(
        "packets",
        "packets",
        f64::from(packets),
        1.0,
        f64::MAX,
        Wanted::AtLeastOne,
    )?;
    Ok(-(f64::from(packets) * (-loss_packet).ln_1p()).exp_m1())
}

/// Mean number of losses in a row, if everything is lost in bursts with a mean time of
/// `burst_s`, and packets (or chunks) follow one another every `interval_s`.
///
/// The bursts are those of a Markov chain in continuous time, which is in its bad state for a share
/// `loss_packet` of the time. Seen at equal intervals, it is the chain of [`Loss::Markov`], with
/// `p_bad_to_good = (1 - loss_packet) (1 - m)`, `p_good_to_bad = loss_packet (1 - m)` and
/// `m = exp(-interval_s / (burst_s (1 - loss_packet)))`. The result is `1 / p_bad_to_good`. For an
/// interval far above the bursts, it is that of independent losses, `1 / (1 - loss_packet)`.
///
/// # Errors
///
/// `loss_packet` must be 0 to 0.99, and the two times positive and finite.
pub fn losses_in_burst(loss_packet: f64, burst_s: f64, interval_s: f64) -> Result<f64, ModelError> {
    within(
        "loss_packet",
        "as a probability",
        loss_packet,
        0.0,
        MAX_LOSS,
        Wanted::MeanLoss,
    )?;
    for (argument, time_s) in [("burst_s", burst_s), ("interval_s", interval_s)] {
        positive(argument, "seconds", time_s)?;
    }
    let left = -(-interval_s / (burst_s * (1.0 - loss_packet))).exp_m1();
    Ok(1.0 / ((1.0 - loss_packet) * left))
}

pub(crate) fn probability(argument: &'static str, value: f64) -> Result<f64, ModelError> {
    within(
        argument,
        "as a probability",
        value,
        0.0,
        1.0,
        Wanted::ZeroToOne,
    )
}

fn packets_of_chunk(packets: u32) -> Result<f64, ModelError> {
    let wanted = Wanted::PacketsOfChunk;
    within(
        "packets_per_chunk",
        "packets",
        f64::from(packets),
        1.0,
        MAX_PACKETS,
        wanted,
    )
}

impl Loss {
    /// Independent losses of chunks of one packet.
    #[must_use]
    pub fn iid(loss_chunk: f64) -> Self {
        Self::Iid {
            loss_chunk,
            packets_per_chunk: 1,
        }
    }

    /// Probability that a single packet is lost, such as a control message.
    ///
    /// # Errors
    ///
    /// As [`Self::loss_chunk`].
    pub fn loss_packet(&self) -> Result<f64, ModelError> {
        let loss_chunk = self.loss_chunk()?;
        match *self {
            Self::Iid {
                packets_per_chunk, ..
            } => {
                let packets = packets_of_chunk(packets_per_chunk)?;
                if packets_per_chunk == 1 {
                    return Ok(loss_chunk);
                }
                Ok(-((-loss_chunk).ln_1p() / packets).exp_m1())
            }
            Self::Markov {
                p_good_to_bad,
                p_bad_to_good,
                loss_good,
                loss_bad,
                ..
            } => {
                let both = p_good_to_bad + p_bad_to_good;
                Ok((p_bad_to_good * loss_good + p_good_to_bad * loss_bad) / both)
            }
        }
    }

    /// Probability that a chunk is lost.
    ///
    /// # Errors
    ///
    /// Each probability must be 0 to 1, and the result at most 0.99; the chain must be able to
    /// leave both states.
    pub fn loss_chunk(&self) -> Result<f64, ModelError> {
        let loss = match *self {
            Self::Iid { loss_chunk, .. } => loss_chunk,
            Self::Markov { .. } => self.chain()?.map_or(0.0, |chain| chain.loss_chunk()),
        };
        within(
            "loss_chunk",
            "as a probability",
            loss,
            0.0,
            MAX_LOSS,
            Wanted::MeanLoss,
        )
    }

    /// The chain in steps of chunks; `None` for i.i.d. loss.
    pub(crate) fn chain(&self) -> Result<Option<Chain>, ModelError> {
        let Self::Markov {
            p_good_to_bad,
            p_bad_to_good,
            loss_good,
            loss_bad,
            packets_per_chunk,
        } = *self
        else {
            return Ok(None);
        };
        let leaves = |argument, value| {
            within(
                argument,
                "as a probability",
                value,
                f64::MIN_POSITIVE,
                1.0,
                Wanted::AboveZero,
            )
        };
        leaves("p_good_to_bad", p_good_to_bad)?;
        leaves("p_bad_to_good", p_bad_to_good)?;
        probability("loss_good", loss_good)?;
        probability("loss_bad", loss_bad)?;
        packets_of_chunk(packets_per_chunk)?;
        let share_bad = p_good_to_bad / (p_good_to_bad + p_bad_to_good);
        let step = [
            [1.0 - p_good_to_bad, p_good_to_bad],
            [p_bad_to_good, 1.0 - p_bad_to_good],
        ];
        // Sum over the position of the first lost packet. All terms are positive, so precision is
        // kept.
        let mut delivered = IDENTITY;
        let mut lost = [[0.0; 2]; 2];
        for _ in 0..packets_per_chunk {
            let survive = scale_rows(&step, [1.0 - loss_good, 1.0 - loss_bad]);
            let die = scale_rows(&step, [loss_good, loss_bad]);
            lost = add(&multiply(&lost, &step), &multiply(&delivered, &die));
            delivered = multiply(&delivered, &survive);
        }
        Ok(Some(Chain {
            share: [1.0 - share_bad, share_bad],
            delivered,
            lost,
        }))
    }
}

/// A matrix over the states good and bad. It maps from row to column.
pub(crate) type States = [[f64; 2]; 2];

pub(crate) const IDENTITY: States = [[1.0, 0.0], [0.0, 1.0]];

/// A two-state chain in steps of chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// Long-run probability of each state.
    pub(crate) share: [f64; 2],
    /// Transitions with the chunk delivered.
    pub(crate) delivered: States,
    /// Transitions with the chunk lost.
    pub(crate) lost: States,
}

impl Chain {
    pub(crate) fn loss_chunk(&self) -> f64 {
        weigh(self.share, &self.lost)
    }

    /// How much the state says about the state this number of chunks later: their correlation,
    /// without its sign.
    pub(crate) fn memory(&self, chunks: f64) -> f64 {
        let step = add(&self.delivered, &self.lost);
        (1.0 - step[0][1] - step[1][0]).abs().powf(chunks)
    }

    /// Transitions over `chunks` chunks, delivered or lost.
    pub(crate) fn walk(&self, chunks: f64) -> States {
        let step = add(&self.delivered, &self.lost);
        let memory = 1.0 - step[0][1] - step[1][0];
        let mut left = memory.abs().powf(chunks);
        if memory < 0.0 && chunks % 2.0 != 0.0 {
            left = -left;
        }
        let [good, bad] = self.share;
        [
            [good + bad * left, bad * (1.0 - left)],
            [good * (1.0 - left), bad + good * left],
        ]
    }

    /// The chain in reverse order of time. The transitions are the same, but a chunk is lost or
    /// delivered after the step instead of before.
    pub(crate) fn reversed(&self) -> Self {
        let turn = |forward: &States| {
            let mut back = [[0.0; 2]; 2];
            for (from, row) in forward.iter().enumerate() {
                for (to, p) in row.iter().enumerate() {
                    back[to][from] = p * self.share[from] / self.share[to];
                }
            }
            back
        };
        Self {
            share: self.share,
            delivered: turn(&self.delivered),
            lost: turn(&self.lost),
        }
    }
}

/// Total probability of `matrix` from the states `from`.
pub(crate) fn weigh(from: [f64; 2], matrix: &States) -> f64 {
    from[0] * (matrix[0][0] + matrix[0][1]) + from[1] * (matrix[1][0] + matrix[1][1])
}

pub(crate) fn multiply(a: &States, b: &States) -> States {
    let cell = |i: usize, j: usize| a[i][0] * b[0][j] + a[i][1] * b[1][j];
    [[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]]
}

pub(crate) fn add(a: &States, b: &States) -> States {
    let cell = |i: usize, j: usize| a[i][j] + b[i][j];
    [[cell(0, 0), cell(0, 1)], [cell(1, 0), cell(1, 1)]]
}

fn scale_rows(a: &States, by: [f64; 2]) -> States {
    [a[0].map(|x| x * by[0]), a[1].map(|x| x * by[1])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_loss_is_that_of_the_paper_and_stable() {
        assert!((chunk_loss(1e-5, 16).unwrap() - 1.599_880_005_6e-4).abs() < 1e-12);
        assert!((chunk_loss(1e-15, 64).unwrap() / 6.4e-14 - 1.0).abs() < 1e-12);
        assert_eq!(chunk_loss(1.0, 3), Ok(1.0));
        assert!(chunk_loss(f64::NAN, 1).is_err());
        assert!(chunk_loss(0.5, 0).is_err());
    }

    #[test]
    fn chain_agrees_with_its_definition() {
        let loss = Loss::Markov {
            p_good_to_bad: 0.01,
            p_bad_to_good: 0.25,
            loss_good: 0.001,
            loss_bad: 0.5,
            packets_per_chunk: 1,
        };
        let bad = 0.01 / 0.26;
        let want = (1.0 - bad) * 0.001 + bad * 0.5;
        assert!((loss.loss_chunk().unwrap() - want).abs() < 1e-15);
        let chain = loss.chain().unwrap().unwrap();
        let mut walked = IDENTITY;
        for _ in 0..7 {
            walked = multiply(&walked, &add(&chain.delivered, &chain.lost));
        }
        for (got, want) in chain
            .walk(7.0)
            .iter()
            .flatten()
            .zip(walked.iter().flatten())
        {
            assert!((got - want).abs() < 1e-15);
        }
        let back = chain.reversed();
        let forth = multiply(&chain.lost, &chain.delivered);
        let turned = multiply(&back.delivered, &back.lost);
        assert!((weigh(chain.share, &forth) - weigh(back.share, &turned)).abs() < 1e-15);
    }

    #[test]
    fn states_alike_are_iid_loss() {
        let loss = Loss::Markov {
            p_good_to_bad: 0.3,
            p_bad_to_good: 0.1,
            loss_good: 1e-4,
            loss_bad: 1e-4,
            packets_per_chunk: 16,
        };
        let want = chunk_loss(1e-4, 16).unwrap();
        assert!((loss.loss_chunk().unwrap() / want - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_loss_of_a_packet_is_that_of_a_chunk_of_one_packet() {
        for packets_per_chunk in [1, 16, 256] {
            let loss_chunk = chunk_loss(1e-3, packets_per_chunk).unwrap();
            let iid = Loss::Iid {
                loss_chunk,
                packets_per_chunk,
            };
            assert!((iid.loss_packet().unwrap() / 1e-3 - 1.0).abs() < 1e-12);
            let bursts = Loss::Markov {
                p_good_to_bad: 1e-3,
                p_bad_to_good: 0.099,
                loss_good: 0.01,
                loss_bad: 0.51,
                packets_per_chunk,
            };
            assert!((bursts.loss_packet().unwrap() - 0.015).abs() < 1e-15);
        }
        let none = Loss::Iid {
            loss_chunk: 0.1,
            packets_per_chunk: 0,
        };
        let error = none.loss_packet().unwrap_err().to_string();
        assert!(error.contains("packets_per_chunk = 0"), "{error}");
    }

    #[test]
    fn errors_name_the_argument() {
        let error = Loss::iid(0.999).loss_chunk().unwrap_err();
        assert_eq!(
            error.to_string(),
            "loss_chunk = 0.999 as a probability: must be 0 to 0.99 (in the mean)"
        );
        assert!(Loss::iid(f64::NAN).loss_chunk().is_err());
        let huge = Loss::iid(1e300).loss_chunk().unwrap_err().to_string();
        assert!(huge.starts_with("loss_chunk = 1e300 as"), "{huge}");
    }
}
