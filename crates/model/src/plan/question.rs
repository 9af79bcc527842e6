//! The inputs of the planner.

use core::fmt;
use core::str::FromStr;

use super::estimate::{Estimate, Time};
use super::{Alternative, Plan};
use farwrite_codes::Kind;

use crate::completion::CompletionTime;
use crate::error::{ModelError, Wanted, positive, within};
use crate::loss::Loss;

use crate::scheme::Scheme;
use crate::setting::{Compute, Setting, Variant};

/// The quantity to minimise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// The mean completion time.
    Mean,
    /// The time within which a message completes with this probability.
    Quantile(f64),
}

impl Objective {
    /// Checks the probability of a quantile.
    pub(super) fn check(q: f64) -> Result<f64, ModelError> {
        let below_one = 1.0 - f64::EPSILON / 2.0;
        within("q", "as a probability", q, 0.0, below_one, Wanted::BelowOne)
    }

    /// The number of draws without which it cannot be compared.
    pub(super) fn least_draws(self) -> usize {
        let least = match self {
            Self::Mean => FIRST_DRAWS,
            Self::Quantile(q) => (DRAWS_ABOVE / (1.0 - q)).clamp(FIRST_DRAWS, 1e4),
        };
        crate::excess::index(least)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            // Round to the digits that a user types: 99.9, not 99.90000000000001.
            Self::Quantile(q) => write!(f, "p{}", (q * 1e15).round() / 1e13),
        }
    }
}

impl FromStr for Objective {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let unknown = || ModelError::Objective(text.to_owned());
        if text == "mean" {
            return Ok(Self::Mean);
        }
        let percent = text.strip_prefix('p').ok_or_else(unknown)?;
        let percent: f64 = percent.parse().map_err(|_| unknown())?;
        // The number that 0.999 is, and not its neighbour. With more than 13 decimals, it can be 1.
        let q = (percent * 1e13).round() / 1e15;
        match percent >= 0.0 && q < 1.0 {
            true => Ok(Self::Quantile(q)),
            false => Err(unknown()),
        }
    }
}

/// The budget for coding at each end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coding {
    /// Cores for coding. With 0, there is no erasure coding.
    pub cores: f64,
    /// Rate at which a core encodes data with an XOR code, in bits a second.
    pub xor_bps: f64,
    /// Rate at which a core encodes data with an MDS code, in bits a second, multiplied by the
    /// parity chunks of a group: each parity chunk costs a pass over the data.
    pub mds_bps: f64,
}

impl Default for Coding {
    /// The one core of a shipped endpoint on a machine with few cores, where the thread that sends messages
    /// also codes them. It has the speed of a core in the paper's Fig. 11, where 400 Gbit/s need 4 cores
    /// for XOR(32, 8), and 8 for MDS(32, 8).
    fn default() -> Self {
        Self {
            cores: 1.0,
            xor_bps: 100e9,
            mds_bps: 400e9,
        }
    }
}

/// Random numbers and losses of a plan: one or two seconds.
const DRAW_WORK: u64 = 8_000_000;
/// Draws with which a comparison of candidates begins, and the draws above a quantile.
const FIRST_DRAWS: f64 = 64.0;
const DRAWS_ABOVE: f64 = 5.0;

/// Limits of the draws of one candidate for one value of an input, where the sensitivity to inputs
/// needs hundreds of them.
const BRIEF_DRAWS: usize = 128;
const BRIEF_WORK: u64 = 8_000;

/// A question to the planner.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Length of the message in bytes.
    pub message_bytes: f64,
    /// Rate of the path in bits a second.
    pub bandwidth_bps: f64,
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// The loss model of the chunks.
    pub loss: Loss,
    /// The variant of the model. Where it has no answer and is [`Variant::Protocol`], the planner
    /// takes [`Variant::Serial`] with the waits of the protocol. Where the model has no exact
    /// evaluation, which is so for losses in bursts, the planner draws completion times.
    pub variant: Variant,
    /// Bytes of a chunk.
    pub chunk_bytes: f64,
    /// The quantity to minimise.
    pub objective: Objective,
    /// Highest number of parity chunks per data chunk of a full group.
    pub max_parity_overhead: f64,
    /// The budget for coding.
    pub coding: Coding,
    /// Schemes to choose from.
    pub candidates: Vec<Scheme>,
    /// Limit of the random numbers and losses of all draws together, where times are drawn. About
    /// ten million take a second or two.
    pub draw_work: u64,
    /// Relative margin: a scheme is good if its objective exceeds the lowest by at most this share.
    /// The planner chooses the cheapest good scheme.
    pub close: f64,
}

impl Question {
    /// A question about shipped protocols ([`Variant::Protocol`]) with i.i.d. loss, chunks of 4096
    /// bytes, the mean as objective, at most a quarter of parity, the default coding budget, all of
    /// [`Self::usual_candidates`], and a margin of 1 percent.
    pub fn new(message_bytes: f64, bandwidth_bps: f64, rtt_s: f64, loss_chunk: f64) -> Self {
        Self {
            message_bytes,
            bandwidth_bps,
            rtt_s,
            loss: Loss::iid(loss_chunk),
            variant: Variant::Protocol,
            chunk_bytes: 4096.0,
            objective: Objective::Mean,
            max_parity_overhead: 0.25,
            coding: Coding::default(),
            candidates: Self::usual_candidates(),
            draw_work: DRAW_WORK,
            close: 0.01,
        }
    }

    /// Selective repeat, Go-Back-N, and both codes with 4 to 128 data chunks and 1 to 32 parity
    /// chunks, at most half the number of data chunks.
    pub fn usual_candidates() -> Vec<Scheme> {
        let mut candidates = vec![Scheme::SrNack, Scheme::SrRto, Scheme::GoBackN];
        for code in [Kind::Xor, Kind::Mds] {
            for k in [4, 8, 16, 32, 64, 128] {
                for m in [1, 2, 4, 8, 16, 32] {
                    if 2 * m <= k {
                        candidates.push(Scheme::Ec { code, k, m });
                    }
                }
            }
        }
        candidates
    }

    /// The usual candidates that are within the budgets.
    pub fn affordable_candidates(&self) -> Vec<Scheme> {
        let mut candidates = Self::usual_candidates();
        candidates.retain(|scheme| self.affords(*scheme).is_ok());
        candidates
    }

    /// Evaluates the candidates and chooses a scheme.
    ///
    /// # Errors
    ///
    /// An argument is out of its range, or no candidate is left within the budgets.
    pub fn plan(&self) -> Result<Plan, ModelError> {
        Plan::new(self)
    }

    /// Checks the budgets and the objective.
    pub(super) fn check(&self) -> Result<(), ModelError> {
        let most = f64::MAX;
        within(
            "max_parity_overhead",
            "parity chunks a data chunk",
            self.max_parity_overhead,
            0.0,
            most,
            Wanted::NotNegative,
        )?;
        within(
            "cores",
            "cores",
            self.coding.cores,
            0.0,
            most,
            Wanted::NotNegative,
        )?;
        positive("xor_bps", "bit/s", self.coding.xor_bps)?;
        positive("mds_bps", "bit/s", self.coding.mds_bps)?;
        within(
            "close",
            "as a share",
            self.close,
            0.0,
            1.0,
            Wanted::ZeroToOne,
        )?;
        if let Objective::Quantile(q) = self.objective {
            Objective::check(q)?;
        }
        Ok(())
    }

    /// Whether a scheme is within the budgets.
    ///
    /// # Errors
    ///
    /// It has more parity than [`Self::max_parity_overhead`], or there are no cores for coding.
    pub fn affords(&self, scheme: Scheme) -> Result<(), ModelError> {
        let parity = scheme.parity_overhead();
        if parity > self.max_parity_overhead {
            return Err(ModelError::ParityBudget(parity, self.max_parity_overhead));
        }
        if matches!(scheme, Scheme::Ec { .. }) && self.coding.cores <= 0.0 {
            return Err(ModelError::NoCores);
        }
        Ok(())
    }

    /// Parity chunks per data chunk of the message. A short last group has all parity chunks of a full one, so this
    /// can exceed [`Self::max_parity_overhead`].
    fn parity_overhead(&self, scheme: Scheme) -> f64 {
        let Scheme::Ec { k, m, .. } = scheme else {
            return 0.0;
        };
        let chunks = (self.message_bytes / self.chunk_bytes).ceil();
        (chunks / f64::from(k)).ceil() * f64::from(m) / chunks
    }

    pub(super) fn cost(&self, scheme: Scheme, time: &Time) -> Result<Alternative, ModelError> {
        let value = |objective| time.estimate(objective).map(|of| of.value);
        let objective_s = value(self.objective)?;
        let cores = match scheme {
            Scheme::Ec { .. } => {
                let data_bps = self.bandwidth_bps / (1.0 + scheme.parity_overhead());
                data_bps / self.core_bps(scheme)
            }
            _ => 0.0,
        };
        Ok(Alternative {
            scheme,
            objective_s,
            mean_s: value(Objective::Mean)?,
            p99_s: value(Objective::Quantile(0.99))?,
            p999_s: value(Objective::Quantile(0.999))?,
            slowdown: objective_s / time.lossless_s(),
            parity_overhead: self.parity_overhead(scheme),
            cores,
            drawn: time.drawn(self.objective)?,
        })
    }

    /// The objective of a scheme in seconds, from few draws if it is drawn.
    pub(super) fn estimate(&self, scheme: Scheme) -> Result<Estimate, ModelError> {
        let mut time = self.time(scheme)?;
        time.draw(BRIEF_DRAWS, BRIEF_WORK);
        time.estimate(self.objective)
    }

    pub(super) fn measure(&self, time: &CompletionTime) -> Result<f64, ModelError> {
        match self.objective {
            Objective::Mean => Ok(time.mean()),
            Objective::Quantile(q) => time.quantile(q),
        }
    }

    /// The completion time of a scheme, exact or to be drawn.
    pub(super) fn time(&self, scheme: Scheme) -> Result<Time, ModelError> {
        let mut setting = Setting::new(
            scheme,
            self.message_bytes,
            self.bandwidth_bps,
            self.rtt_s,
            0.0,
        );
        setting.loss = self.loss;
        setting.chunk_bytes = self.chunk_bytes;
        setting.variant = self.variant;
        if let Scheme::Ec { .. } = scheme {
            let coding_bps = Some(self.coding.cores * self.core_bps(scheme));
            setting.compute = Compute {
                encode_bps: coding_bps,
                decode_bps: coding_bps,
            };
        }
        if self.variant == Variant::Protocol && !setting.has_rounds()? {
            let (rto_rtts, beta) = scheme.protocol_waits();
            setting.variant = Variant::Serial;
            (setting.rto_rtts, setting.beta) = (Some(rto_rtts), beta);
        }
        Time::new(&setting)
    }

    /// Rate at which a core codes data, in bits a second.
    fn core_bps(&self, scheme: Scheme) -> f64 {
        match scheme {
            Scheme::Ec {
                code: Kind::Mds, m, ..
            } => self.coding.mds_bps / f64::from(m),
            _ => self.coding.xor_bps,
        }
    }
}
