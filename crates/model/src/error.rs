//! Errors of the model's arguments.

use core::fmt;

use crate::scheme::Scheme;

/// Why the model cannot evaluate its arguments.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A number is out of the range of its argument.
    #[error("{argument} = {} {unit}: must be {wants}", Number(*value))]
    Argument {
        /// The argument's name.
        argument: &'static str,
        /// Its unit. For a plain number, what it counts.
        unit: &'static str,
        /// The given value.
        value: f64,
        /// The valid values.
        wants: Wanted,
    },
    /// The text is not a scheme.
    #[error("scheme = {0:?}: must be sr-rto, sr-nack, gbn, ec-mds:K,M or ec-xor:K,M")]
    Scheme(String),
    /// The scheme may end before the message is whole.
    #[error(
        "scheme = {0:?}: must be a scheme that continues until the message is whole, because the \
         model is about that time: sr-rto, sr-nack, gbn, ec-mds:K,M or ec-xor:K,M"
    )]
    BestEffort(String),
    /// The scheme has no groups of data and parity.
    #[error("scheme = {0:?}: must be ec-mds:K,M or ec-xor:K,M, the schemes with groups")]
    NoGroups(String),
    /// The text is not an objective.
    #[error(
        "objective = {0:?}: must be mean, or p and percent up to 99.9999999999999, such as p99.9"
    )]
    Objective(String),
    /// The text is not a variant of the model.
    #[error("variant = {0:?}: must be paper, serial or protocol")]
    Variant(String),
    /// The text is not a collective operation.
    #[error("collective = {0:?}: must be ring, tree or recursive-doubling")]
    Collective(String),
    /// Two neighbours of a ring have no path: sender and receiver.
    #[error("links[{0}][{1}]: must have a path")]
    NoPath(usize, usize),
    /// Coding takes time, and the variant of the model leaves that out.
    #[error("variant: must be serial or protocol where coding takes time")]
    PaperCoding,
    /// A scheme sends more parity than a plan allows.
    #[error("parity = {0} of the data: must be at most the parity budget, {1}")]
    ParityBudget(f64, f64),
    /// A scheme codes, and a plan has no cores for that.
    #[error("cores = 0: must be above zero for a scheme with parity")]
    NoCores,
    /// A plan has no candidate that is within its budgets and can be evaluated. The reason for each.
    #[error("candidates = {}: must have one that can be used", Reasons(.0))]
    NoCandidate(Vec<(Scheme, ModelError)>),
    /// The combination of arguments cannot be evaluated.
    #[error(transparent)]
    Unsupported(Unsupported),
}

impl ModelError {
    /// Whether another scheme may have an answer.
    pub(crate) fn is_of_scheme(&self) -> bool {
        matches!(
            self,
            Self::Unsupported(_) | Self::ParityBudget(..) | Self::NoCores
        )
    }
}

/// Shows a number, with an exponent if it would be long.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.abs() {
            size if size == 0.0 || !size.is_finite() || (1e-6..1e16).contains(&size) => {
                self.0.fmt(f)
            }
            _ => write!(f, "{:e}", self.0),
        }
    }
}

/// Shows candidates, each with the reason why it cannot be used.
struct Reasons<'a>(&'a [(Scheme, ModelError)]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (at, (scheme, reason)) in self.0.iter().enumerate() {
            let between = if at > 0 { "; " } else { "" };
            write!(f, "{between}{scheme} ({reason})")?;
        }
        Ok(())
    }
}

/// The valid values of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wanted {
    /// Any number.
    #[error("a number")]
    Number,
    /// Finite and above 0.
    #[error("finite and above zero")]
    Positive,
    /// Finite, 0 or more.
    #[error("0 or more, and finite")]
    NotNegative,
    /// 1 or more.
    #[error("at least 1")]
    AtLeastOne,
    /// Packets of a chunk.
    #[error("1 to 2^20")]
    PacketsOfChunk,
    /// 0 to 1.
    #[error("0 to 1")]
    ZeroToOne,
    /// A probability above 0.
    #[error("above 0, to 1")]
    AboveZero,
    /// A probability below 1, for a quantile.
    #[error("0 or more and below 1")]
    BelowOne,
    /// A probability that a quantile of stages can resolve.
    #[error("0 to 1 - 1e-9")]
    StageQuantile,
    /// A probability of loss at which messages still arrive.
    #[error("0 to 0.99 (in the mean)")]
    MeanLoss,
    /// A timeout in round trips.
    #[error("1 to 1e6")]
    TimeoutRtts,
    /// How long a receiver of erasure coding waits after the injection, in round trips.
    #[error("0 to 1e6")]
    BetaRtts,
    /// A message of a limited number of chunks.
    #[error("at most 2^40 chunks of chunk_bytes")]
    MessageChunks,
    /// A round trip that is comparable with the time to inject a chunk.
    #[error("1e-12 to 1e12 times the time to inject a chunk, 8 chunk_bytes / bandwidth_bps")]
    RoundTripSlots,
    /// Data chunks of a group.
    #[error("1 to 4096, with k + m at most 4096")]
    GroupData,
    /// Parity chunks of a group.
    #[error("at least 1, with k + m at most 4096")]
    GroupParity,
    /// Parity chunks of a group with an XOR code.
    #[error("at most k for an XOR code")]
    XorParity,
    /// Sites of a ring.
    #[error("2 to {}", crate::plan::MOST_RING_SITES)]
    RingSites,
    /// Sites of a collective operation.
    #[error("2 to 256")]
    Sites,
}

/// A quantity that is too large to evaluate exactly.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// The mean probability that a chunk is lost.
    #[error(
        "loss_chunk in the mean, of selective repeat under Markov loss = {0}: take at most 0.5, or \
         sample"
    )]
    MarkovLoss(f64),
    /// The number of parity chunks of an XOR code, under Markov loss.
    #[error("m of an XOR code under Markov loss = {0}: take at most 16, or sample")]
    XorParity(u32),
    /// The standard deviation of the number of losses.
    #[error(
        "spread of the number of losses under Markov loss = {0}: take a shorter message or shorter \
         bursts, or sample"
    )]
    LossSpread(f64),
    /// The mean length of bursts, in packets, behind LoWAR boxes.
    #[error(
        "mean burst = {0} packets: bursts last as long as a round trip, so that a repeated packet meets \
         the same burst; take less than a fifth of the packets of a round trip"
    )]
    LongBursts(f64),
    /// Losses in bursts, in the variant that follows the protocol.
    #[error(
        "Markov loss with variant = \"protocol\": take variant serial or independent losses, or sample"
    )]
    ProtocolBursts,
    /// Bursts that last as long as a timeout: the correlation of the losses of a chunk and of its
    /// repeat.
    #[error(
        "correlation of losses over a timeout, of selective repeat under Markov loss = {0}: bursts last \
         as long as the timeout; take at most 0.001, or sample"
    )]
    LongMemory(f64),
    /// The number of chunks in a group, in the variant that follows the protocol.
    #[error(
        "k + m with variant = \"protocol\" = {0}: take at most 255, as the protocol does (P5.4)"
    )]
    ProtocolGroup(u32),
    /// The probability that a packet is lost, in the variant that follows the protocol.
    #[error(
        "loss of packets with variant = \"protocol\" = {0}: take at most 0.5, or variant serial"
    )]
    ProtocolLoss(f64),
}

/// Returns `value` if it is within `[low, high]`. NaN is not.
pub(crate) fn within(
    argument: &'static str,
    unit: &'static str,
    value: f64,
    low: f64,
    high: f64,
    wants: Wanted,
) -> Result<f64, ModelError> {
    if value >= low && value <= high {
        Ok(value)
    } else {
        Err(ModelError::Argument {
            argument,
            unit,
            value,
            wants,
        })
    }
}

/// Returns `value` if it is finite and above zero.
pub(crate) fn positive(
    argument: &'static str,
    unit: &'static str,
    value: f64,
) -> Result<f64, ModelError> {
    within(
        argument,
        unit,
        value,
        f64::MIN_POSITIVE,
        f64::MAX,
        Wanted::Positive,
    )
}
