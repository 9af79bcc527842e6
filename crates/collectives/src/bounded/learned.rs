//! What the bounded operations of a group have measured, and how the next ones run.

use farwrite::deadline::{Observation, Policy, Proposal, Tally, TimeoutKey, Timeouts, Verdict};
use farwrite::{ChunkLoss, Endpoint, Error, Fabric, SchemeName};
use farwrite_codes::{Code, Kind};

use super::collect::Collected;
use super::options::BoundedOptions;
use super::qp::BoundedQp;

/// The timeouts, and the loss on the paths to this rank.
#[derive(Debug)]
pub(crate) struct Learned {
    options: BoundedOptions,
    timeouts: Timeouts,
    /// The losses on the paths to this rank at the end of the previous operation.
    losses: ChunkLoss,
    /// The share of packets that the paths dropped, in millionths, when they last carried any.
    loss_ppm: u32,
}

/// How one operation runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How long the operation waits for contributions; `None` during the warm-up.
    pub(crate) timeout_ns: Option<u64>,
    /// The scheme that carries contributions.
    pub(crate) scheme: SchemeName,
    pub(crate) verdict: Verdict,
}

/// What this rank knows of the paths to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    loss_ppm: u32,
    rtt_ns: Option<u64>,
}

impl Learned {
    /// The initial state, without measurements. A packet is one chunk.
    pub(crate) fn new(options: BoundedOptions, packets_per_segment: u32) -> Self {
        Self {
            options,
            timeouts: Timeouts::new(options.policy, options.bounds)
                .with_message_chunks(packets_per_segment),
            losses: ChunkLoss::default(),
            loss_ppm: 0,
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.timeouts.tally()
    }

    /// How the next operation of `bytes` bytes runs.
    pub(crate) fn terms(&mut self, key: TimeoutKey, bytes: u64) -> Terms {
        let chooses_scheme = self.chooses_scheme();
        let timeout = self.timeouts.get_mut(key);
        let verdict = timeout.verdict();
        let scheme = match verdict {
            _ if !chooses_scheme => self.options.scheme,
            Verdict::Wait | Verdict::CannotBeMet { .. } => self.options.scheme,
            Verdict::Parity { k, m } => {
                let code = Code::new(Kind::Mds, k as usize, m as usize);
                SchemeName::BestEffortEc(code.expect("verdicts have small groups"))
            }
            Verdict::Repeats { .. } => SchemeName::BestEffortSr,
        };
        Terms {
            timeout_ns: timeout.timeout_ns(bytes),
            scheme,
            verdict,
        }
    }

    /// Whether the loss of the path determines the scheme.
    fn chooses_scheme(&self) -> bool {
        matches!(self.options.policy, Policy::LossTarget { .. })
            && self.options.scheme == SchemeName::BestEffort
    }

    /// The proposal of this rank after the first phase of an operation; `None` if it expected no
    /// data.
    pub(crate) fn propose(
        &mut self,
        key: TimeoutKey,
        bytes: u64,
        verdict: Verdict,
        collected: &Collected,
        measured: Measured,
    ) -> Option<Proposal> {
        let path_loss_ppm = match self.chooses_scheme() {
            true => measured.loss_ppm,
            // The loss that remains after the repair of a scheme that does not change.
            false => ppm(collected.dropped_bytes, collected.expected_bytes).unwrap_or(0),
        };
        self.timeouts.get_mut(key).propose(&Observation {
            bytes,
            elapsed_ns: collected.elapsed_ns,
            received_bytes: collected.received_bytes,
            expected_bytes: collected.expected_bytes,
            timed_out: collected.timed_out,
            path_loss_ppm,
            verdict,
            rtt_ns: measured.rtt_ns,
        })
    }

    /// Measures the paths to this rank: what they dropped since the last call, before any repair,
    /// and the longest round trip.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn measure<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        qps: &[Option<BoundedQp>],
    ) -> Result<Measured, Error> {
        let mut losses = ChunkLoss::default();
        let mut rtt_ns = None;
        for qp in qps.iter().flatten() {
            losses = losses.and(&endpoint.qp_stats(qp.queue_pair())?.receive_loss);
            let path = endpoint.path_stats(qp.queue_pair())?;
            rtt_ns = rtt_ns.max(path.base_rtt_ns.map(|_| path.rtt_ns));
        }
        let before = std::mem::replace(&mut self.losses, losses);
        let lost = losses.lost_chunks().saturating_sub(before.lost_chunks());
        let judged = losses
            .judged_chunks()
            .saturating_sub(before.judged_chunks());
        self.loss_ppm = ppm(lost, judged).unwrap_or(self.loss_ppm);
        Ok(Measured {
            loss_ppm: self.loss_ppm,
            rtt_ns,
        })
    }

    /// Processes the proposals of all ranks after an operation of `bytes` bytes.
    pub(crate) fn agree(&mut self, key: TimeoutKey, bytes: u64, proposals: &[Proposal]) {
        self.timeouts.get_mut(key).agree(bytes, proposals);
    }
}

/// A share in millionths; `None` if `whole` is 0.
fn ppm(part: u64, whole: u64) -> Option<u32> {
    let millionths = (u128::from(part) * 1_000_000).checked_div(whole.into())?;
    Some(u32::try_from(millionths).unwrap_or(u32::MAX))
}
