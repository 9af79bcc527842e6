//! Flows, and what starts them.

/// One message from a host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The sender, by its place among the hosts of the topology.
    pub src: usize,
    /// The receiver, likewise.
    pub dst: usize,
    /// Bytes of the message; at least 1.
    pub bytes: u64,
    /// Traffic class, 0 to 7; `None` for that of the transport.
    pub priority: Option<u8>,
    /// What starts it.
    pub start: Start,
    /// The trigger that is activated when the sender knows that the message has arrived.
    pub when_sent: Option<usize>,
    /// The trigger that is activated when the message has arrived.
    pub when_received: Option<usize>,
}

/// What starts a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A time, in nanoseconds since the run began.
    At(u64),
    /// A trigger, by its place in [`Workload::triggers`].
    On(usize),
}

/// Starts the flows that wait for it, in the order in which the workload has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// How often it has to be activated.
    pub kind: TriggerKind,
    /// How long after the activation flows start, in nanoseconds.
    pub delay_ns: u64,
}

/// What an activation of a trigger does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerKind {
    /// The first one starts all flows. The others do nothing.
    OneShot,
    /// Each one starts one flow.
    MultiShot,
    /// This one, counted from 1, starts all flows.
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
pub enum WorkloadError {
    /// There is nothing to do.
    #[error("the workload has no flows")]
    Empty,
    /// A flow has an end that does not exist.
    #[error("flow {flow} is between host {src} and host {dst}; the topology has hosts 0 to {}", hosts - 1)]
    NoHost {
        /// Which flow, from 0.
        flow: usize,
        /// Its sender.
        src: usize,
        /// Its receiver.
        dst: usize,
        /// How many hosts there are.
        hosts: usize,
    },
    /// A flow leads from a host to itself.
    #[error("flow {flow} leads from host {host} to itself; choose two hosts")]
    Loop {
        /// Which flow, from 0.
        flow: usize,
        /// The host.
        host: usize,
    },
    /// A flow has no bytes.
    #[error("flow {flow} has 0 bytes; a message has at least 1")]
    NoBytes {
        /// Which flow, from 0.
        flow: usize,
    },
    /// A flow names a trigger that does not exist.
    #[error("flow {flow} names trigger {trigger}; the workload has {triggers}")]
    NoTrigger {
        /// Which flow, from 0.
        flow: usize,
        /// Which trigger, from 0.
        trigger: usize,
        /// How many there are.
        triggers: usize,
    },
}

impl Flow {
    /// A flow that starts at a time and activates nothing.
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

    /// Adds a trigger without delay and returns its place.
    pub fn add_trigger(&mut self, kind: TriggerKind) -> usize {
        self.triggers.push(Trigger { kind, delay_ns: 0 });
        self.triggers.len() - 1
    }

    /// Adds another workload that runs at the same time.
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
            let waits_for = match at.start {
                Start::On(trigger) => Some(trigger),
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
