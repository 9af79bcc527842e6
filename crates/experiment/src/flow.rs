//! Flows, and the triggers that start them.

use std::collections::{BTreeMap, VecDeque};

/// One message from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Index of the sender among the hosts of the topology.
    pub src: usize,
    /// Index of the receiver among the hosts of the topology.
    pub dst: usize,
    /// Bytes of the message, at least 1; [`ENDLESS_BYTES`](Self::ENDLESS_BYTES) for a flow that
    /// sends until the run ends.
    pub bytes: u64,
    /// Traffic class, 0 to 7; `None`: the class of the transport.
    pub priority: Option<u8>,
    /// The condition that starts the flow.
    pub start: Start,
    /// The trigger that is activated when the sender has the acknowledgement of the whole message.
    pub when_sent: Option<usize>,
    /// The trigger that is activated when the receiver has the whole message.
    pub when_received: Option<usize>,
}

/// The condition that starts a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A time, in nanoseconds since the run began.
    At(u64),
    /// The activation of a trigger, by its index in [`Workload::triggers`].
    On(usize),
}

/// A trigger starts the flows that wait for it, in their order in the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Which activations start flows.
    pub kind: TriggerKind,
    /// Delay from the activation to the start of the flows, in nanoseconds.
    pub delay_ns: u64,
}

/// Which activations of a trigger start flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The first activation starts all waiting flows. Later activations do nothing.
    OneShot,
    /// Each activation starts one waiting flow.
    MultiShot,
    /// The activation with this number, counted from 1, starts all waiting flows.
    Barrier(u64),
}

/// Flows and triggers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The flows.
    pub flows: Vec<Flow>,
    /// The triggers.
    pub triggers: Vec<Trigger>,
}

/// Why a workload does not fit a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The workload has no flows.
    #[error("the workload has no flows")]
    Empty,
    /// The sender or the receiver of a flow does not exist.
    #[error("flow {flow} is between host {src} and host {dst}; the topology has hosts 0 to {}", hosts - 1)]
    NoHost {
        /// Index of the flow.
        flow: usize,
        /// Index of the sender.
        src: usize,
        /// Index of the receiver.
        dst: usize,
        /// Number of hosts of the topology.
        hosts: usize,
    },
    /// Sender and receiver of a flow are the same host.
    #[error("flow {flow} leads from host {host} to itself; choose two hosts")]
    Loop {
        /// Index of the flow.
        flow: usize,
        /// Index of the host.
        host: usize,
    },
    /// A flow has no bytes.
    #[error("flow {flow} has 0 bytes; a message has at least 1")]
    NoBytes {
        /// Index of the flow.
        flow: usize,
    },
    /// A flow has a priority that no frame has.
    #[error("flow {flow} has priority {priority}; a priority is 0 to 7")]
    Priority {
        /// Index of the flow.
        flow: usize,
        /// The value given.
        priority: u8,
    },
    /// A flow sends until the run ends, and the run has no end.
    #[error(
        "flow {flow} has no size, so it sends until the run ends, and the run has no end; set until \
         = \"10ms\" in a plan, or --until 10ms with the matrix, or give the flow a size"
    )]
    NoEnd {
        /// Index of the flow.
        flow: usize,
    },
    /// A flow is so long that a run to its end takes days.
    #[error(
        "flow {flow} has {bytes} bytes; a run that has no end takes at most {} bytes in a flow, because \
         longer ones take days; set until = \"10ms\" in a plan, or --until 10ms with the file of the \
         flows, or make the flow shorter",
        Flow::MAX_WHOLE_BYTES
    )]
    TooLong {
        /// Index of the flow.
        flow: usize,
        /// Its length.
        bytes: u64,
    },
    /// A flow starts later than a simulation lasts.
    #[error(
        "flow {flow} starts at {:.0} s; flows start within a day ({} s)",
        *start_ns as f64 / 1e9,
        Flow::MAX_START_NS / 1_000_000_000
    )]
    TooLate {
        /// Index of the flow.
        flow: usize,
        /// Its start.
        start_ns: u64,
    },
    /// A flow names a trigger that does not exist.
    #[error("flow {flow} names trigger {trigger}; the workload has {triggers}")]
    NoTrigger {
        /// Index of the flow.
        flow: usize,
        /// Index of the trigger.
        trigger: usize,
        /// Number of triggers.
        triggers: usize,
    },
}

impl Flow {
    /// The length of a flow that sends until the run ends.
    pub const ENDLESS_BYTES: u64 = u64::MAX;

    /// The longest flow of a run that ends when its flows are done: 1 PB. With the largest packets,
    /// such a flow has 2.4e11 of them.
    pub const MAX_WHOLE_BYTES: u64 = 1_000_000_000_000_000;

    /// The latest start of a flow: a day, as for other times of a simulation.
    pub const MAX_START_NS: u64 = 86_400_000_000_000;

    /// Whether the flow sends until the run ends.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        self.bytes == Self::ENDLESS_BYTES
    }

    /// A flow that starts at a given time and activates no trigger.
    #[must_use]
    pub fn new(src: usize, dst: usize, bytes: u64, start_ns: u64) -> Self {
        Self {
            src,
            dst,
            bytes,
            priority: None,
            start: Start::At(start_ns),
            when_sent: None,
            when_received: None,
        }
    }
}

impl Workload {
    /// Flows without triggers.
    #[must_use]
    pub fn of(flows: Vec<Flow>) -> Self {
        Self {
            flows,
            triggers: Vec::new(),
        }
    }

    /// Adds a trigger without delay and returns its index.
    pub fn add_trigger(&mut self, kind: TriggerKind) -> usize {
        self.triggers.push(Trigger { kind, delay_ns: 0 });
        self.triggers.len() - 1
    }

    /// Adds the flows and triggers of another workload, which runs at the same time.
    pub fn append(&mut self, other: Self) {
        let before = self.triggers.len();
        let shift = |trigger: Option<usize>| trigger.map(|trigger| trigger + before);
        self.flows.extend(other.flows.into_iter().map(|flow| Flow {
            start: match flow.start {
                Start::On(trigger) => Start::On(trigger + before),
                at => at,
            },
            when_sent: shift(flow.when_sent),
            when_received: shift(flow.when_received),
            ..flow
        }));
        self.triggers.extend(other.triggers);
    }

    /// The flows that wait for a trigger that is never activated, or not often enough for a barrier.
    pub(crate) fn never_start(&self) -> Vec<usize> {
        let mut waiting: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
        let mut starting = Vec::new();
        for (number, flow) in self.flows.iter().enumerate() {
            match flow.start {
                Start::At(_) => starting.push(number),
                Start::On(trigger) => waiting.entry(trigger).or_default().push_back(number),
            }
        }
        let mut activations = vec![0; self.triggers.len()];
        while let Some(number) = starting.pop() {
            let Flow {
                when_sent,
                when_received,
                ..
            } = self.flows[number];
            for trigger in [when_sent, when_received].into_iter().flatten() {
                activations[trigger] += 1;
                let flows = waiting.get_mut(&trigger).map(std::mem::take);
                let mut flows = flows.unwrap_or_default();
                let now = match self.triggers[trigger].kind {
                    TriggerKind::OneShot => flows.len(),
                    TriggerKind::MultiShot => flows.len().min(1),
                    TriggerKind::Barrier(needed) if activations[trigger] == needed => flows.len(),
                    TriggerKind::Barrier(_) => 0,
                };
                starting.extend(flows.drain(..now));
                waiting.insert(trigger, flows);
            }
        }
        waiting.into_values().flatten().collect()
    }

    /// Checks that a run with endless or very long flows has an end.
    ///
    /// # Errors
    /// [`WorkloadError::NoEnd`] or [`WorkloadError::TooLong`] names the first such flow.
    pub fn check_end(&self, until_ns: Option<u64>) -> Result<(), WorkloadError> {
        let is_long = |flow: &Flow| flow.bytes > Flow::MAX_WHOLE_BYTES;
        let long = self.flows.iter().position(is_long);
        let Some(flow) = long.filter(|_| until_ns.is_none()) else {
            return Ok(());
        };
        let bytes = self.flows[flow].bytes;
        Err(match self.flows[flow].is_endless() {
            true => WorkloadError::NoEnd { flow },
            false => WorkloadError::TooLong { flow, bytes },
        })
    }

    /// Checks the flows for a topology with this number of hosts.
    ///
    /// # Errors
    /// [`WorkloadError`] names the first flow that does not fit.
    pub fn validate(&self, hosts: usize) -> Result<(), WorkloadError> {
        if self.flows.is_empty() {
            return Err(WorkloadError::Empty);
        }
        for (flow, &at) in self.flows.iter().enumerate() {
            let Flow { src, dst, .. } = at;
            if src >= hosts || dst >= hosts {
                return Err(WorkloadError::NoHost {
                    flow,
                    src,
                    dst,
                    hosts,
                });
            }
            if src == dst {
                return Err(WorkloadError::Loop { flow, host: src });
            }
            if at.bytes == 0 {
                return Err(WorkloadError::NoBytes { flow });
            }
            if let Some(priority) = at.priority.filter(|priority| *priority > 7) {
                return Err(WorkloadError::Priority { flow, priority });
            }
            let waits_for = match at.start {
                Start::On(trigger) => Some(trigger),
                Start::At(start_ns) if start_ns > Flow::MAX_START_NS => {
                    return Err(WorkloadError::TooLate { flow, start_ns });
                }
                Start::At(_) => None,
            };
            let triggers = self.triggers.len();
            let named = [waits_for, at.when_sent, at.when_received];
            if let Some(trigger) = named.into_iter().flatten().find(|at| *at >= triggers) {
                return Err(WorkloadError::NoTrigger {
                    flow,
                    trigger,
                    triggers,
                });
            }
        }
        Ok(())
    }
}
