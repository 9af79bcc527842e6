//! The inputs of the planner.

use core::fmt;
use core::str::FromStr;

use super::{Alternative, Plan};
use crate::blocks::DEPTH;
use crate::completion::CompletionTime;
use crate::error::{ModelError, Wanted, positive, within};
use crate::loss::Loss;

use crate::scheme::{Code, Scheme};
use crate::setting::{Compute, Setting, Variant};

/// The quantity to minimise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// The mean completion time.
    Mean,
    /// The time within which a message completes with this probability.
    Quantile(f64),
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            // Round to the digits that a user types: 99.9, not 99.90000000000001.
            Self::Quantile(q) => write!(f, "p{}", (q * 1e11).round() / 1e9),
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
        if (0.0..100.0).contains(&percent) {
            // The number that 0.999 is, and not its neighbour.
            Ok(Self::Quantile((percent * 1e13).round() / 1e15))
        } else {
            Err(unknown())
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
    /// Eight cores with the speeds of the paper's Fig. 11: 400 Gbit/s need 4 cores for XOR(32, 8),
    /// and 8 for MDS(32, 8).
    fn default() -> Self {
        Self {
            cores: 8.0,
            xor_bps: 100e9,
            mds_bps: 400e9,
        }
    }
}

/// Correlation between the losses of two chunks of a group up to which they count as independent.
const MAX_MEMORY: f64 = 0.05;

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
    /// takes [`Variant::Serial`] with the waits of the protocol.
    pub variant: Variant,
    /// Bytes of a chunk.
    pub chunk_bytes: f64,
    /// The quantity to minimise.
    pub objective: Objective,
    /// Highest number of parity chunks per data chunk.
    pub max_parity_overhead: f64,
    /// The budget for coding.
    pub coding: Coding,
    /// Schemes to choose from.
    pub candidates: Vec<Scheme>,
    /// Relative margin: a scheme is good if its objective exceeds the lowest by at most this share.
    /// The planner chooses the cheapest good scheme.
    pub close: f64,
}

impl Question {
    /// A question about shipped protocols ([`Variant::Protocol`]) with i.i.d. loss, chunks of 4096
    /// bytes, the mean as objective, at most a quarter of parity, the default coding budget, all of [`Self::usual_candidates`], and a margin of 1
    /// percent.
    pub fn new(message_bytes: f64, bandwidth_bps: f64, rtt_s: f64, loss_chunk: f64) -> Self {
        Self {
            message_bytes,
            bandwidth_bps,
            rtt_s,
            loss: Loss::Iid { loss_chunk },
            variant: Variant::Protocol,
            chunk_bytes: 4096.0,
            objective: Objective::Mean,
            max_parity_overhead: 0.25,
            coding: Coding::default(),
            candidates: Self::usual_candidates(),
            close: 0.01,
        }
    }

    /// Selective repeat, Go-Back-N, and both codes with 4 to 128 data chunks and 1 to 32 parity
    /// chunks, at most half the number of data chunks.
    pub fn usual_candidates() -> Vec<Scheme> {
        let mut candidates = vec![Scheme::SrNack, Scheme::SrRto, Scheme::GoBackN];
        for code in [Code::Xor, Code::Mds] {
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

    /// Evaluates the candidates and chooses a scheme.
    ///
    /// # Errors
    ///
    /// An argument is out of its range, or no candidate is left within the budgets.
    pub fn plan(&self) -> Result<Plan, ModelError> {
        Plan::new(self)
    }

    /// The candidates within the budgets.
    pub(super) fn affordable(&self) -> Result<Vec<Scheme>, ModelError> {
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
        let affordable = |scheme: &&Scheme| match scheme {
            Scheme::Ec { .. } => {
                self.coding.cores > 0.0 && scheme.parity_overhead() <= self.max_parity_overhead
            }
            _ => true,
        };
        Ok(self.candidates.iter().filter(affordable).copied().collect())
    }

    /// The cost of a scheme.
    pub(super) fn cost(&self, scheme: Scheme) -> Result<Alternative, ModelError> {
        let time = self.completion_time(scheme)?;
        let objective_s = self.measure(&time)?;
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
            mean_s: time.mean(),
            p99_s: time.quantile(0.99)?,
            p999_s: time.quantile(0.999)?,
            slowdown: objective_s / time.lossless_s(),
            parity_overhead: scheme.parity_overhead(),
            cores,
        })
    }

    /// The objective of a scheme in seconds.
    pub(super) fn objective_s(&self, scheme: Scheme) -> Result<f64, ModelError> {
        self.measure(&self.completion_time(scheme)?)
    }

    pub(super) fn measure(&self, time: &CompletionTime) -> Result<f64, ModelError> {
        match self.objective {
            Objective::Mean => Ok(time.mean()),
            Objective::Quantile(q) => time.quantile(q),
        }
    }

    fn completion_time(&self, scheme: Scheme) -> Result<CompletionTime, ModelError> {
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
        if self.variant == Variant::Protocol {
            setting.loss = self.loss_of(scheme)?;
        }
        if self.variant == Variant::Protocol && !setting.has_rounds()? {
            let (rto_rtts, beta) = scheme.protocol_waits();
            setting.variant = Variant::Serial;
            (setting.rto_rtts, setting.beta) = (Some(rto_rtts), beta);
        }
        setting.completion_time()
    }

    /// The losses as a scheme of the protocol meets them. Erasure coding sends the chunks of a group
    /// far from each other (P5.4.3), so the losses in a group are independent unless bursts are long.
    fn loss_of(&self, scheme: Scheme) -> Result<Loss, ModelError> {
        let (
            Scheme::Ec { k, .. },
            Loss::Markov {
                p_good_to_bad,
                p_bad_to_good,
                packets_per_chunk,
                ..
            },
        ) = (scheme, self.loss)
        else {
            return Ok(self.loss);
        };
        let groups = (self.message_bytes / self.chunk_bytes / f64::from(k)).ceil();
        let packets = groups.min(DEPTH) * f64::from(packets_per_chunk);
        // The correlation of the chain at two packets with this distance.
        let memory = (1.0 - p_good_to_bad - p_bad_to_good).abs().powf(packets);
        if memory > MAX_MEMORY {
            return Ok(self.loss);
        }
        let loss_chunk = self.loss.loss_chunk()?;
        Ok(Loss::Iid { loss_chunk })
    }

    /// Rate at which a core codes data, in bits a second.
    fn core_bps(&self, scheme: Scheme) -> f64 {
        match scheme {
            Scheme::Ec {
                code: Code::Mds, m, ..
            } => self.coding.mds_bps / f64::from(m),
            _ => self.coding.xor_bps,
        }
    }
}
