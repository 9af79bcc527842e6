//! The plan of a case as a plain value.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use farwrite::fabric::sim::{LinkConfig, SimClock};
use farwrite_collectives::{
    Delivery, ElementType, GroupOptions, Operation, OperationOptions, Reduction,
};

pub(super) const MS: u64 = 1_000_000;

/// The plan of a case.
#[derive(Clone, Debug)]
pub struct CollectivePlan {
    /// The number of ranks.
    pub ranks: usize,
    /// The options of the group.
    pub options: GroupOptions,
    /// The path between any two ranks, in each direction.
    pub link: LinkConfig,
    /// The operations, in their order.
    pub steps: Vec<Step>,
    /// The clock of each rank.
    pub clocks: Vec<SimClock>,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// The seed of the faults of single packets.
    pub path_seed: u64,
}

/// An operation, and when each rank starts it.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation, as rank 0 gives it. Sends have the receiver here.
    pub operation: Operation,
    /// The rank that sends, if the operation is a send.
    pub sender: usize,
    /// Its options.
    pub options: OperationOptions,
    /// The number of elements of each rank, or of a part.
    pub count: usize,
    /// For each rank: the time from its last start to this one, in nanoseconds.
    pub gaps_ns: Vec<u64>,
}

impl Step {
    /// The type of its values; bytes for an operation that reduces nothing.
    pub(super) fn element(&self) -> ElementType {
        self.values()
            .map_or(ElementType::U8, |(element, _)| element)
    }

    /// The type and the reduction of an operation that reduces.
    pub(super) fn values(&self) -> Option<(ElementType, Reduction)> {
        match self.operation {
            Operation::AllReduce { element, reduction }
            | Operation::ReduceScatter { element, reduction }
            | Operation::Reduce {
                element, reduction, ..
            } => Some((element, reduction)),
            _ => None,
        }
    }

    /// The operation as a rank starts it; `None` if the rank takes no part.
    pub(super) fn at(&self, rank: usize) -> Option<Operation> {
        match self.operation {
            Operation::Send { to, .. } if rank != self.sender && rank != to => None,
            Operation::Send { to, tag } if rank == to => Some(Operation::Receive {
                from: self.sender,
                tag,
            }),
            _ => Some(self.operation.clone()),
        }
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.options.delivery == Delivery::Bounded
    }

    pub(super) fn is_send(&self) -> bool {
        matches!(self.operation, Operation::Send { .. })
    }

    pub(super) fn is_all_reduce(&self) -> bool {
        matches!(self.operation, Operation::AllReduce { .. })
    }

    /// Bytes of a part, or of the whole for operations that are not divided.
    pub(super) fn bytes(&self) -> usize {
        let element = usize::try_from(self.element().bytes()).expect("few bytes");
        self.count * element
    }
}

/// Something that goes wrong. The rank of a fatal fault is the cause of all errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rank does nothing from one time to another.
    Stall {
        /// The rank.
        rank: usize,
        /// When it begins.
        from_ns: u64,
        /// When it ends.
        to_ns: u64,
    },
    /// No packets pass from one rank to another, control packets included.
    Cut {
        /// The rank whose packets are lost.
        from: usize,
        /// The rank that does not get them.
        to: usize,
        /// When it begins.
        from_ns: u64,
        /// When it ends.
        to_ns: u64,
    },
    /// Control packets alone do not pass from one rank to another. Data packets do.
    ControlCut {
        /// The rank whose control packets are lost.
        from: usize,
        /// The rank that does not get them.
        to: usize,
        /// When it begins.
        from_ns: u64,
        /// When it ends.
        to_ns: u64,
    },
    /// Fatal: a rank does nothing from this time on.
    Death {
        /// The rank.
        rank: usize,
        /// When.
        at_ns: u64,
    },
    /// Fatal: a rank stalls for longer than the timeout of operations.
    LateReturn {
        /// The rank.
        rank: usize,
        /// When it stops.
        from_ns: u64,
        /// When it returns.
        to_ns: u64,
    },
    /// Fatal: a rank leaves the group.
    Leave {
        /// The rank.
        rank: usize,
        /// When.
        at_ns: u64,
    },
    /// Fatal: a rank ends the group.
    Abort {
        /// The rank.
        rank: usize,
        /// When.
        at_ns: u64,
    },
    /// Fatal: a rank starts an operation with one more element.
    Differ {
        /// The rank.
        rank: usize,
        /// The number of the step.
        step: usize,
    },
}

impl Fault {
    /// The rank that errors must name, if there may be errors.
    pub(super) fn culprit(&self) -> Option<usize> {
        match *self {
            Self::Stall { .. } | Self::Cut { .. } | Self::ControlCut { .. } => None,
            Self::Death { rank, .. }
            | Self::LateReturn { rank, .. }
            | Self::Leave { rank, .. }
            | Self::Abort { rank, .. }
            | Self::Differ { rank, .. } => Some(rank),
        }
    }

    /// When a fatal fault begins. `None` for one that begins with an operation.
    pub(super) fn begins_ns(&self) -> Option<u64> {
        match *self {
            Self::Death { at_ns, .. } | Self::Leave { at_ns, .. } | Self::Abort { at_ns, .. } => {
                Some(at_ns)
            }
            Self::LateReturn { from_ns, .. } => Some(from_ns),
            _ => None,
        }
    }

    /// When a rank does nothing, if the fault stops it.
    pub(super) fn pause(&self) -> Option<(usize, u64, u64)> {
        match *self {
            Self::Stall {
                rank,
                from_ns,
                to_ns,
            }
            | Self::LateReturn {
                rank,
                from_ns,
                to_ns,
            } => Some((rank, from_ns, to_ns)),
            Self::Death { rank, at_ns } => Some((rank, at_ns, u64::MAX)),
            _ => None,
        }
    }
}

impl CollectivePlan {
    /// Whether a bounded operation has an exact phase.
    pub(super) fn has_exact_phase(&self, step: &Step) -> bool {
        step.is_all_reduce() && self.options.bounded.parts == Delivery::Exact
    }

    /// The rank that errors must name; `None` if there must be no error.
    pub(super) fn culprit(&self) -> Option<usize> {
        self.faults.iter().find_map(Fault::culprit)
    }

    /// When the fault begins that errors are about; `None` if it begins with an operation.
    pub(super) fn fails_from_ns(&self) -> Option<u64> {
        self.faults.iter().find_map(Fault::begins_ns)
    }

    /// Whether a rank has started an operation with another size by this step.
    pub(super) fn differs_by(&self, number: usize) -> bool {
        let differs =
            |fault: &Fault| matches!(*fault, Fault::Differ { step, .. } if step <= number);
        self.faults.iter().any(differs)
    }

    pub(super) fn dies(&self, rank: usize) -> bool {
        let dies = |fault: &Fault| matches!(*fault, Fault::Death { rank: it, .. } if it == rank);
        self.faults.iter().any(dies)
    }

    /// The end of a pause of a rank that has begun by `now_ns`; `None` if it runs at that time.
    pub(super) fn paused_until_ns(&self, rank: usize, now_ns: u64) -> Option<u64> {
        let pauses = self.faults.iter().filter_map(Fault::pause);
        let its = pauses
            .filter(|(it, from_ns, to_ns)| *it == rank && (*from_ns..*to_ns).contains(&now_ns));
        its.map(|(_, _, to_ns)| to_ns).max()
    }

    /// The time of the network when the clock of a rank has moved by `span_ns` since `from_ns`.
    pub(super) fn later_ns(&self, rank: usize, from_ns: u64, span_ns: u64) -> u64 {
        let clock = self.clocks[rank];
        clock.network_ns(clock.local_ns(from_ns).saturating_add(span_ns))
    }

    pub(super) fn timeout(&self) -> Duration {
        self.options.timeout
    }
}

impl Display for CollectivePlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ranks, {:?}", self.ranks, self.options)?;
        writeln!(f, "{:?}", self.link)?;
        writeln!(f, "{:?}", self.clocks)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "step {number}: {step:?}")?;
        }
        self.faults
            .iter()
            .try_for_each(|fault| writeln!(f, "{fault:?}"))
    }
}
