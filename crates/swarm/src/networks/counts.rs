//! Counts the events that cases in networks have met.

use std::fmt::{self, Display, Formatter};
use std::ops::AddAssign;

use farwrite_net::{FrameDrop, PortCounters};

/// The kinds of events that cases should meet, in the order of the counts.
const KINDS: [&str; 17] = [
    "messages of endpoints",
    "WRITEs",
    "WRITEs with immediate",
    "SENDs",
    "READs",
    "requests given up",
    "queue pairs with several requests",
    "flows in fat trees",
    "flows between datacenters",
    "PFC frames",
    "marks",
    "trimmed frames",
    "path changes",
    "drops by buffers",
    "drops by lossy cables",
    "cases with bursts of losses",
    "drops by failed cables",
];

/// How often cases have met each kind of event.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkCounts {
    counts: [u64; KINDS.len()],
}

/// Flows that are finished.
#[derive(Clone, Copy, Default)]
pub(super) struct FinishedFlows {
    pub(super) endpoint: u64,
    pub(super) write: u64,
    pub(super) write_immediate: u64,
    pub(super) send: u64,
    pub(super) read: u64,
    pub(super) given_up: u64,
    /// Flows between NICs with several messages.
    pub(super) several: u64,
    /// Flows of any end in a fat tree.
    pub(super) fat_tree: u64,
    /// Flows of any end from one datacenter to another.
    pub(super) between_sites: u64,
    /// 1 if a cable loses frames in bursts.
    pub(super) bursty: u64,
}

impl NetworkCounts {
    pub(super) fn new(finished: FinishedFlows, totals: &PortCounters) -> Self {
        Self {
            counts: [
                finished.endpoint,
                finished.write,
                finished.write_immediate,
                finished.send,
                finished.read,
                finished.given_up,
                finished.several,
                finished.fat_tree,
                finished.between_sites,
                totals.pauses_sent,
                totals.marked,
                totals.trimmed,
                totals.path_changes,
                totals.dropped_for(FrameDrop::Buffer),
                totals.dropped_for(FrameDrop::Cable),
                finished.bursty,
                totals.dropped_for(FrameDrop::CableDown),
            ],
        }
    }

    /// The kinds that no case met.
    #[must_use]
    pub fn holes(&self) -> Vec<&'static str> {
        let pairs = KINDS.into_iter().zip(self.counts);
        pairs
            .filter(|(_, count)| *count == 0)
            .map(|(kind, _)| kind)
            .collect()
    }
}

impl AddAssign for NetworkCounts {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum += more;
        }
    }
}

impl Display for NetworkCounts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (kind, count) in KINDS.into_iter().zip(self.counts) {
            writeln!(f, "{kind:<34} {count:>10}")?;
        }
        Ok(())
    }
}
