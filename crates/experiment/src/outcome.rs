//! The outcome of a run.

use std::collections::BTreeMap;
use std::ops::Range;

use farwrite_net::{NodeId, PortCounters};

use crate::{BoxTotals, Capture, Depths, Series};

/// How a flow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// The sender has the acknowledgement of the whole message. With a transport that has a
    /// deadline: the receive is complete.
    Done {
        /// Time of completion, in nanoseconds.
        at_ns: u64,
    },
    /// The flow failed.
    Failed(FlowError),
    /// The run ended before the flow did.
    Unfinished,
    /// The flow's trigger was not activated.
    NotStarted,
}

/// What ended a flow of XP. A flow that has ended may lack bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// Its last packet arrived.
    LastPacket,
    /// All of its bytes arrived.
    Bytes,
    /// Its deadline came.
    Deadline,
    /// A packet of a later flow of its queue pair arrived.
    LaterFlow,
}

impl EndedBy {
    /// The name in result files: `last-packet`, `bytes`, `deadline` or `later-flow`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LastPacket => "last-packet",
            Self::Bytes => "bytes",
            Self::Deadline => "deadline",
            Self::LaterFlow => "later-flow",
        }
    }
}

/// Why a flow failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// The queue pair of a NIC broke.
    #[error(transparent)]
    Nic(farwrite_rc::RequestError),
    /// An endpoint was not done within a minute, or within 1000 times the ideal time if that is
    /// longer.
    #[error(
        "not done after a minute, or after 1000 times the ideal time if that is longer; see whether \
         a path is there"
    )]
    Late,
    /// Switches have stopped each other in a circle, by PFC.
    #[error("switches have stopped each other in a circle, by PFC")]
    Deadlock,
    /// A NIC without a limit of retransmissions: no frame reached any host for eight timeouts, and for a
    /// second at least.
    #[error("no frame reached a host for eight timeouts; see whether a path is there")]
    NothingArrives,
}

/// The outcome of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Start time in nanoseconds; `None` if the flow did not start.
    pub start_ns: Option<u64>,
    /// How the flow ended.
    pub end: FlowEnd,
    /// Whether statistics count the flow: it has not started outside of the time `measure` of the plan.
    pub is_measured: bool,
    /// Completion time on an empty network, in nanoseconds; see [`Ideal`](crate::Ideal). `None` if
    /// no path leads to the receiver.
    pub ideal_ns: Option<f64>,
    /// Bytes that had not arrived when the flow ended; 0 for whole messages.
    pub missing_bytes: u64,
    /// What ended a flow of XP; `None` for other flows.
    pub ended_by: Option<EndedBy>,
    /// Packets with payload that the sender sent.
    pub packets: u64,
    /// Retransmissions among them.
    pub repeated: u64,
    /// Timeouts of the sender.
    pub timeouts: u64,
    /// Bytes of a flow without an end that were acknowledged when the run ended; `None` for other
    /// flows, and for those that did not start.
    pub endless_bytes: Option<u64>,
}

/// The outcome of a run. Flows are in the order of the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The outcome of each flow.
    pub flows: Vec<FlowOutcome>,
    /// What had not arrived of each flow that ended before all of it had: ranges of its bytes, in order. Of endpoints,
    /// these are whole chunks, although [`FlowOutcome::missing_bytes`] does not count packets that arrived of them.
    pub missing: BTreeMap<usize, Vec<Range<u64>>>,
    /// The sum of the counters of all ports.
    pub totals: PortCounters,
    /// The sum of the counters of all boxes.
    pub boxes: BoxTotals,
    /// Queue lengths over time.
    pub depths: Depths,
    /// Links and flows over time, if the run records them.
    pub series: Option<Series>,
    /// The packets of one host, if the run records them.
    pub capture: Option<Capture>,
    /// The ports of switches, by node and number, that PFC has stopped in a circle; none without one.
    pub deadlock: Vec<(NodeId, usize)>,
    /// End of the run in nanoseconds. If all flows are done, this is when the last one ended.
    pub end_ns: u64,
    /// Events that the simulator handled.
    pub events: u64,
    /// A hash of everything that happened. Equal runs have equal hashes.
    pub trace_hash: u64,
}

impl FlowEnd {
    /// The name in result files: `done`, `failed`, `deadlock`, `unfinished` or `not started`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Failed(FlowError::Deadlock) => "deadlock",
            Self::Failed(_) => "failed",
            Self::Unfinished => "unfinished",
            Self::NotStarted => "not started",
        }
    }
}

impl FlowOutcome {
    /// Nanoseconds from the start to the acknowledgement of the last packet; `None` if the flow did
    /// not complete.
    #[must_use]
    pub fn time_ns(&self) -> Option<u64> {
        match (self.end, self.start_ns) {
            (FlowEnd::Done { at_ns }, Some(start_ns)) => Some(at_ns - start_ns),
            _ => None,
        }
    }

    /// Goodput of a flow without an end in bits per second, in a run that ends at `end_ns`; `None`
    /// for other flows.
    #[must_use]
    pub fn endless_goodput_bps(&self, end_ns: u64) -> Option<f64> {
        let real = farwrite_units::show::real;
        let time_ns = end_ns.checked_sub(self.start_ns?).filter(|&ns| ns > 0)?;
        Some(real(self.endless_bytes?) * 8e9 / real(time_ns))
    }

    /// The completion time divided by the ideal time.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let time_ns = farwrite_units::show::real(self.time_ns()?);
        Some(time_ns / self.ideal_ns?)
    }
}

impl Outcome {
    /// The flows that statistics count.
    pub fn measured(&self) -> impl Iterator<Item = &FlowOutcome> {
        self.flows.iter().filter(|flow| flow.is_measured)
    }

    /// Flows that are done.
    #[must_use]
    pub fn done(&self) -> usize {
        let times = self.flows.iter().filter_map(FlowOutcome::time_ns);
        times.count()
    }

    /// Nanoseconds from the start of the first flow to the end of the last one that was done; `None` if none
    /// was.
    #[must_use]
    pub fn last_done_ns(&self) -> Option<u64> {
        let ends = self.flows.iter().filter_map(|flow| match flow.end {
            FlowEnd::Done { at_ns } => Some(at_ns),
            _ => None,
        });
        let starts = self.flows.iter().filter_map(|flow| flow.start_ns);
        Some(ends.max()? - starts.min()?)
    }

    /// Flows that failed.
    #[must_use]
    pub fn failed(&self) -> usize {
        let failed = |flow: &&FlowOutcome| matches!(flow.end, FlowEnd::Failed(_));
        self.flows.iter().filter(failed).count()
    }

    /// Packets with payload that were sent, over all flows.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.flows.iter().map(|flow| flow.packets).sum()
    }

    /// Retransmitted packets, over all flows.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.flows.iter().map(|flow| flow.repeated).sum()
    }

    /// Bytes that had not arrived when flows ended, over all flows.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.flows.iter().map(|flow| flow.missing_bytes).sum()
    }

    /// Mean goodput of all flows without an end together, in bits per second: their acknowledged
    /// bytes, each flow from its start to the end of the run. `None` if there is no such flow.
    #[must_use]
    pub fn endless_goodput_bps(&self) -> Option<f64> {
        let flows = self.flows.iter();
        let each = flows.filter_map(|flow| flow.endless_goodput_bps(self.end_ns));
        each.reduce(|sum, goodput| sum + goodput)
    }

    /// Timeouts of senders, over all flows.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.flows.iter().map(|flow| flow.timeouts).sum()
    }
}
