//! What a run says.

use farwrite_net::PortCounters;

use crate::Depths;

/// What became of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEnd {
    /// The sender knows that the message has arrived.
    Done {
        /// When it learned so, in nanoseconds.
        at_ns: u64,
    },
    /// It was given up.
    Failed(FlowError),
    /// The run ended before.
    Unfinished,
    /// The trigger that it waits for was not activated.
    NotStarted,
}

/// Why a flow was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// The queue pair of a NIC broke.
    #[error(transparent)]
    Nic(farwrite_rc::RequestError),
    /// An endpoint tried for a minute, or for 1000 times the ideal time if that is longer.
    #[error(
        "not done after a minute, or after 1000 times the ideal time if that is longer; see whether \
         a path is there"
    )]
    Late,
}

/// A flow of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowOutcome {
    /// When it started, in nanoseconds; `None` if it did not.
    pub start_ns: Option<u64>,
    /// What became of it.
    pub end: FlowEnd,
    /// Nanoseconds that it takes on an empty network; see [`Ideal`](crate::Ideal). `None` if no
    /// path leads to its receiver.
    pub ideal_ns: Option<f64>,
    /// Packets with payload that were sent.
    pub packets: u64,
    /// Of these, those sent again.
    pub repeated: u64,
    /// Times that the sender waited in vain.
    pub timeouts: u64,
}

/// A run, in the order of its workload's flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Each flow.
    pub flows: Vec<FlowOutcome>,
    /// The sum of the counters of all ports.
    pub totals: PortCounters,
    /// Queues over time.
    pub depths: Depths,
    /// When the run ended, in nanoseconds: with the last flow, if all are done.
    pub end_ns: u64,
    /// Events of the simulation.
    pub events: u64,
    /// A hash of everything that happened: equal in two runs if they are the same.
    pub trace_hash: u64,
}

impl FlowEnd {
    /// As results have it: `done`, `failed`, `unfinished` or `not started`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done { .. } => "done",
            Self::Failed(_) => "failed",
            Self::Unfinished => "unfinished",
            Self::NotStarted => "not started",
        }
    }
}

impl FlowOutcome {
    /// Nanoseconds from the start to the acknowledgement of the last packet; `None` if that did not
    /// come.
    #[must_use]
    pub fn time_ns(&self) -> Option<u64> {
        match (self.end, self.start_ns) {
            (FlowEnd::Done { at_ns }, Some(start_ns)) => Some(at_ns - start_ns),
            _ => None,
        }
    }

    /// The time over that on an empty network.
    #[must_use]
    pub fn slowdown(&self) -> Option<f64> {
        let time_ns = farwrite_units::show::real(self.time_ns()?);
        Some(time_ns / self.ideal_ns?)
    }
}

impl Outcome {
    /// Flows that are done.
    #[must_use]
    pub fn done(&self) -> usize {
        let times = self.flows.iter().filter_map(FlowOutcome::time_ns);
        times.count()
    }

    /// When the last flow was done, in nanoseconds; 0 if none was.
    #[must_use]
    pub fn last_done_ns(&self) -> u64 {
        let ends = self.flows.iter().filter_map(|flow| match flow.end {
            FlowEnd::Done { at_ns } => Some(at_ns),
            _ => None,
        });
        ends.max().unwrap_or(0)
    }

    /// Flows that were given up.
    #[must_use]
    pub fn failed(&self) -> usize {
        let failed = |flow: &&FlowOutcome| matches!(flow.end, FlowEnd::Failed(_));
        self.flows.iter().filter(failed).count()
    }

    /// Packets with payload that were sent, of all flows.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.flows.iter().map(|flow| flow.packets).sum()
    }

    /// Packets sent again, of all flows.
    #[must_use]
    pub fn repeated(&self) -> u64 {
        self.flows.iter().map(|flow| flow.repeated).sum()
    }

    /// Times that a sender waited in vain, of all flows.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.flows.iter().map(|flow| flow.timeouts).sum()
    }
}
