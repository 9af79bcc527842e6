//! What the bounded operations of a group have measured, and how the next ones run.

use std::collections::{BTreeMap, VecDeque};

use farwrite::{ChunkLoss, Endpoint, Error, Fabric, SchemeName};
use farwrite_codes::{Code, Kind};
use farwrite_deadline::{
    CutCounts, Observation, Policy, Proposal, RepairChoice, TimeoutKey, Timeouts,
};

use super::collect::Collected;
use super::options::BoundedOptions;
use super::qp::BoundedQp;
use super::step_times::StepTimes;

/// The timeouts, and the loss on the paths to this rank.
#[derive(Debug)]
pub(crate) struct GroupMeasurements {
    options: BoundedOptions,
    timeouts: Timeouts,
    agreements: BTreeMap<TimeoutKey, Agreements>,
    /// For operations around a ring.
    step_times: BTreeMap<TimeoutKey, StepTimes>,
    /// The losses on the paths to this rank at the end of the previous operation.
    losses: ChunkLoss,
    /// The share of packets that the paths dropped, in millionths, when they last carried any.
    loss_ppm: u32,
}

/// An operation learns from the records of operations that began at least this number of operations
/// of its kind before it. Records need a round trip, and the next operation does not wait for them.
/// A fixed distance makes the timeouts of all ranks equal if the records come that soon.
const DISTANCE: u64 = 2;

/// The operations of one key whose records arrive after them.
#[derive(Debug, Default)]
struct Agreements {
    /// The number of operations that have begun.
    begun: u64,
    /// The number of operations whose proposals have been used.
    used: u64,
    /// The sizes and the proposals of the following operations, as far as they are known.
    known: VecDeque<(u64, Vec<Proposal>)>,
}

/// How one operation runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How long the operation waits for contributions; `None` during the warm-up.
    pub(crate) timeout_ns: Option<u64>,
    /// The scheme that carries contributions.
    pub(crate) scheme: SchemeName,
    pub(crate) repair_choice: RepairChoice,
}

/// What this rank knows of the paths to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    loss_ppm: u32,
    rtt_ns: Option<u64>,
}

impl Measured {
    /// The same for contributions that travel around a ring of these many ranks. A contribution is lost
    /// with any packet on its way, which has half as many steps as there are ranks on average.
    pub(crate) fn over_steps(self, ranks: usize) -> Self {
        let loss_ppm = u64::from(self.loss_ppm) * ranks as u64 / 2;
        Self {
            loss_ppm: u32::try_from(loss_ppm.min(1_000_000)).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// The same with at least what an exchange of contributions lacks that no deadline cut: the path dropped
    /// that. Losses at the end of a message are not measured otherwise, because nothing of the message
    /// arrives after them.
    ///
    /// A sender that began earlier cuts its messages before the deadline of this rank. So an exchange counts
    /// only if it ended within three quarters of its time.
    pub(crate) fn and_missing(self, collected: &Collected, timeout_ns: Option<u64>) -> Self {
        let Collected {
            received_bytes,
            expected_bytes,
            elapsed_ns,
            ..
        } = *collected;
        let is_early = timeout_ns.is_none_or(|ns| elapsed_ns <= ns / 4 * 3);
        let missing_bytes = expected_bytes.saturating_sub(received_bytes);
        match ppm(missing_bytes, expected_bytes) {
            Some(missing_ppm) if is_early => Self {
                loss_ppm: self.loss_ppm.max(missing_ppm),
                ..self
            },
            _ => self,
        }
    }
}

impl GroupMeasurements {
    /// The initial state, without measurements. A packet is one chunk.
    pub(crate) fn new(options: BoundedOptions, packets_per_segment: u32) -> Self {
        let mut timeouts =
            Timeouts::new(options.policy, options.bounds).with_message_chunks(packets_per_segment);
        if !chooses_scheme(&options) {
            timeouts = timeouts.with_fixed_scheme();
        }
        Self {
            options,
            timeouts,
            agreements: BTreeMap::new(),
            step_times: BTreeMap::new(),
            losses: ChunkLoss::default(),
            loss_ppm: 0,
        }
    }

    pub(crate) fn cut_counts(&self) -> CutCounts {
        self.timeouts.cut_counts()
    }

    /// How the next operation of `bytes` bytes runs.
    pub(crate) fn terms(&mut self, key: TimeoutKey, bytes: u64) -> Terms {
        self.begin(key);
        let timeout = self.timeouts.get_mut(key);
        let repair_choice = timeout.repair_choice();
        let scheme = match repair_choice {
            RepairChoice::Wait | RepairChoice::CannotBeMet { .. } => self.options.scheme,
            RepairChoice::Parity { k, m } => {
                let code = Code::new(Kind::Mds, k as usize, m as usize);
                SchemeName::BestEffortEc(code.expect("choices have small groups"))
            }
            RepairChoice::Repeats { .. } => SchemeName::BestEffortSr,
        };
        Terms {
            timeout_ns: timeout.timeout_ns(bytes),
            scheme,
            repair_choice,
        }
    }

    /// Uses the records that the next operation may learn from. The first operation of a key ends
    /// only when its records are complete, so all others may learn from it.
    fn begin(&mut self, key: TimeoutKey) {
        let of_key = self.agreements.entry(key).or_default();
        let timeout = self.timeouts.get_mut(key);
        while of_key.used == 0 || of_key.used + DISTANCE <= of_key.begun {
            let Some((bytes, proposals)) = of_key.known.pop_front() else {
                break;
            };
            timeout.agree(bytes, &proposals);
            self.step_times
                .entry(key)
                .or_default()
                .note_proposals(&proposals);
            of_key.used += 1;
        }
        of_key.begun += 1;
    }

    /// The proposal of this rank after the first phase of an operation; `None` if it expected no
    /// data.
    pub(crate) fn propose(
        &mut self,
        key: TimeoutKey,
        bytes: u64,
        terms: Option<Terms>,
        collected: &Collected,
        measured: Measured,
    ) -> Option<Proposal> {
        let path_loss_ppm = match chooses_scheme(&self.options) {
            true => measured.loss_ppm,
            false => left_ppm(self.options.scheme, measured.loss_ppm),
        };
        self.timeouts.get_mut(key).propose(&Observation {
            bytes,
            elapsed_ns: collected.elapsed_ns,
            received_bytes: collected.received_bytes,
            expected_bytes: collected.expected_bytes,
            timed_out: collected.timed_out,
            path_loss_ppm,
            repair_choice: terms.map_or(RepairChoice::Wait, |terms| terms.repair_choice),
            had_deadline: terms.is_some_and(|terms| terms.timeout_ns.is_some()),
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
            let peer = endpoint.peer_stats(qp.queue_pair())?;
            rtt_ns = rtt_ns.max(peer.base_rtt_ns.map(|_| peer.rtt_ns));
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

    /// The same for an operation that did not wait for these proposals. Later operations learn from
    /// them when their distance is large enough.
    pub(crate) fn agree_later(&mut self, key: TimeoutKey, bytes: u64, proposals: Vec<Proposal>) {
        let of_key = self.agreements.entry(key).or_default();
        of_key.known.push_back((bytes, proposals));
    }

    /// Processes the proposals of all ranks after an operation of `bytes` bytes.
    pub(crate) fn agree(&mut self, key: TimeoutKey, bytes: u64, proposals: &[Proposal]) {
        self.timeouts.get_mut(key).agree(bytes, proposals);
        self.step_times
            .entry(key)
            .or_default()
            .note_proposals(proposals);
    }

    /// What is known of the steps around a ring.
    pub(crate) fn step_times(&mut self, key: TimeoutKey) -> &mut StepTimes {
        self.step_times.entry(key).or_default()
    }
}

/// Whether the loss of the path determines the scheme.
fn chooses_scheme(options: &BoundedOptions) -> bool {
    matches!(options.policy, Policy::LossTarget { .. }) && options.scheme == SchemeName::BestEffort
}

/// The loss that remains after the repair of a scheme that does not change: no waiting brings these
/// bytes. Losses in bursts leave more than this.
fn left_ppm(scheme: SchemeName, loss_ppm: u32) -> u32 {
    let repair = match scheme {
        SchemeName::BestEffort => RepairChoice::Wait,
        SchemeName::BestEffortEc(code) => {
            // An XOR code repairs one loss in each of its m classes of a group.
            let (k, m) = match code.kind() {
                Kind::Xor => (code.k().div_ceil(code.m()), 1),
                Kind::Mds => (code.k(), code.m()),
            };
            RepairChoice::Parity {
                k: u32::try_from(k).unwrap_or(u32::MAX),
                m: u32::try_from(m).unwrap_or(u32::MAX),
            }
        }
        // Repeats bring everything in the end.
        _ => return 0,
    };
    u32::try_from(repair.left_ppm(loss_ppm.into())).unwrap_or(u32::MAX)
}

/// A share in millionths; `None` if `whole` is 0.
fn ppm(part: u64, whole: u64) -> Option<u32> {
    let millionths = (u128::from(part) * 1_000_000).checked_div(whole.into())?;
    Some(u32::try_from(millionths).unwrap_or(u32::MAX))
}
