//! What cases in networks have met.

use std::fmt::{self, Display, Formatter};
use std::ops::AddAssign;

use farwrite_net::{DropReason, PortCounters};

/// The kinds of events that cases should meet, in the order of the counts.
const KINDS: [&str; 12] = [
    "messages of endpoints",
    "WRITEs",
    "SENDs",
    "READs",
    "requests given up",
    "PFC frames",
    "marks",
    "trimmed frames",
    "path changes",
    "drops by buffers",
    "drops by lossy cables",
    "drops by failed cables",
];

/// How often cases have met each kind of event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    counts: [u64; KINDS.len()],
}

/// Flows that are over.
#[derive(Clone, Copy, Default)]
pub(super) struct Over {
    pub(super) endpoint: u64,
    pub(super) write: u64,
    pub(super) send: u64,
    pub(super) read: u64,
    pub(super) given_up: u64,
}

impl Tally {
    pub(super) fn new(over: Over, totals: &PortCounters) -> Self {
        Self {
            counts: [
                over.endpoint,
                over.write,
                over.send,
                over.read,
                over.given_up,
                totals.pauses_sent,
                totals.marked,
                totals.trimmed,
                totals.path_changes,
                totals.dropped_for(DropReason::Buffer),
                totals.dropped_for(DropReason::Cable),
                totals.dropped_for(DropReason::CableDown),
            ],
        }
    }

    /// The kinds that were not met.
    #[must_use]
    pub fn holes(&self) -> Vec<&'static str> {
        let pairs = KINDS.into_iter().zip(self.counts);
        pairs
            .filter(|(_, count)| *count == 0)
            .map(|(kind, _)| kind)
            .collect()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in self.counts.iter_mut().zip(other.counts) {
            *sum += more;
        }
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (kind, count) in KINDS.into_iter().zip(self.counts) {
            writeln!(f, "{kind:<24} {count:>10}")?;
        }
        Ok(())
    }
}
