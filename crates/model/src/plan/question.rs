//! What a planner is asked.

use core::fmt;
use core::str::FromStr;

use super::{Alternative, Plan};
use crate::completion::CompletionTime;
use crate::error::{ModelError, within};
use crate::loss::Loss;
use crate::scheme::{Code, Scheme};
use crate::setting::{Compute, Setting, Variant};

/// What is to be small.
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
            // Decimal digits as they were typed: 99.9, not 99.90000000000001.
            Self::Quantile(q) => write!(f, "p{}", (q * 1e11).round() / 1e9),
        }
    }
}

impl FromStr for Objective {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let unknown = || ModelError::Word {
            argument: "objective",
            value: text.to_owned(),
            wants: "mean, or p and percent below 100 such as p99.9",
        };
        if text == "mean" {
            return Ok(Self::Mean);
        }
        let percent = text.strip_prefix('p').ok_or_else(unknown)?;
        let percent: f64 = percent.parse().map_err(|_| unknown())?;
        if (0.0..100.0).contains(&percent) {
            Ok(Self::Quantile(percent / 100.0))
        } else {
            Err(unknown())
        }
    }
}

/// What coding may cost, at each end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coding {
    /// Cores for it; with none there is no erasure coding.
    pub cores: f64,
    /// Bits of data a second that a core passes through an XOR code.
    pub xor_bps: f64,
    /// Bits of data a second that a core passes through an MDS code, times parity chunks of a group:
    /// each of them costs a pass over the data.
    pub mds_bps: f64,
}

impl Default for Coding {
    /// Eight cores at the speeds of the paper's Fig. 11: 400 Gbit/s take 4 of them for XOR(32, 8), and
    /// 8 for MDS(32, 8).
    fn default() -> Self {
        Self {
            cores: 8.0,
            xor_bps: 100e9,
            mds_bps: 400e9,
        }
    }
}

/// What the planner is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Length of the message in bytes.
    pub message_bytes: f64,
    /// Rate of the path in bits a second.
    pub bandwidth_bps: f64,
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// How chunks are lost.
    pub loss: Loss,
    /// Bytes of a chunk.
    pub chunk_bytes: f64,
    /// What is to be small.
    pub objective: Objective,
    /// Most parity chunks for each data chunk.
    pub max_parity_overhead: f64,
    /// What coding may cost.
    pub coding: Coding,
    /// Schemes to choose from.
    pub candidates: Vec<Scheme>,
    /// By how much a scheme's objective may exceed the least and still count as good: of those the
    /// cheapest is chosen.
    pub close: f64,
}

impl Question {
    /// With i.i.d. loss, chunks of 4096 bytes, the mean as the objective, a quarter of parity at most, coding as
    /// by default, all of [`Self::usual_candidates`], and 1 percent as close.
    pub fn new(message_bytes: f64, bandwidth_bps: f64, rtt_s: f64, loss_chunk: f64) -> Self {
        Self {
            message_bytes,
            bandwidth_bps,
            rtt_s,
            loss: Loss::Iid { loss_chunk },
            chunk_bytes: 4096.0,
            objective: Objective::Mean,
            max_parity_overhead: 0.25,
            coding: Coding::default(),
            candidates: Self::usual_candidates(),
            close: 0.01,
        }
    }

    /// Selective repeat, Go-back-N, and both codes with 4 to 128 data chunks and 1 to 32 parity
    /// chunks, at most half as many as data.
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

    /// The answer.
    ///
    /// # Errors
    ///
    /// An argument is out of its range, or no candidate is left within the budgets.
    pub fn plan(&self) -> Result<Plan, ModelError> {
        Plan::new(self)
    }

    /// Candidates within the budgets.
    pub(super) fn affordable(&self) -> Result<Vec<Scheme>, ModelError> {
        let most = f64::MAX;
        within(
            "max_parity_overhead",
            "parity chunks a data chunk",
            self.max_parity_overhead,
            0.0,
            most,
            "0 or more",
        )?;
        within(
            "cores",
            "cores",
            self.coding.cores,
            0.0,
            most,
            "0 or more, and finite",
        )?;
        within("close", "as a share", self.close, 0.0, 1.0, "0 to 1")?;
        let affordable = |scheme: &&Scheme| match scheme {
            Scheme::Ec { .. } => {
                self.coding.cores > 0.0 && scheme.parity_overhead() <= self.max_parity_overhead
            }
            _ => true,
        };
        Ok(self.candidates.iter().filter(affordable).copied().collect())
    }

    /// What a scheme would cost.
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

    fn measure(&self, time: &CompletionTime) -> Result<f64, ModelError> {
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
        setting.variant = Variant::Serial;
        if let Scheme::Ec { .. } = scheme {
            let coding_bps = Some(self.coding.cores * self.core_bps(scheme));
            setting.compute = Compute {
                encode_bps: coding_bps,
                decode_bps: coding_bps,
            };
        }
        setting.completion_time()
    }

    /// Bits of data a second that a core codes.
    fn core_bps(&self, scheme: Scheme) -> f64 {
        match scheme {
            Scheme::Ec {
                code: Code::Mds, m, ..
            } => self.coding.mds_bps / f64::from(m),
            _ => self.coding.xor_bps,
        }
    }
}
