//! A queue pair that has nothing open gives spare memory back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError};

use super::Pair;
use super::deadlines::Deadlines;

/// How long a queue pair keeps spare memory for the next message, in nanoseconds.
const KEEP_NS: u64 = 1_000_000_000;

/// Whether a queue pair has given its spare memory back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rest {
    /// A message was open at the last poll.
    #[default]
    Busy,
    /// Nothing is open. It gives the memory back at this time.
    Due(u64),
    /// It has.
    Resting,
}

impl Rest {
    pub(super) fn next_ns(self) -> Option<u64> {
        match self {
            Self::Due(at_ns) => Some(at_ns),
            Self::Busy | Self::Resting => None,
        }
    }
}

impl Pair {
    fn is_idle(&self) -> bool {
        self.sends.is_empty()
            && self.streams.is_empty()
            && self.leaving.is_empty()
            && self.recvs.is_empty()
            && self.closing.is_empty()
            && self.outgoing.is_empty()
            && !self.control.is_waiting()
    }

    /// Gives spare memory back once nothing was open for a while.
    pub(super) fn rest<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
    ) -> Result<(), FabricError> {
        if !self.is_idle() {
            self.rest = Rest::Busy;
            return Ok(());
        }
        match self.rest {
            Rest::Busy => self.rest = Rest::Due(now_ns.saturating_add(KEEP_NS)),
            Rest::Due(at_ns) if at_ns <= now_ns => {
                self.rest = Rest::Resting;
                self.give_empty_collections_back();
                self.halves.rest();
                self.losses.rest();
                self.workshop.trim(fabric, 0)?;
            }
            Rest::Due(_) | Rest::Resting => {}
        }
        Ok(())
    }

    /// Collections keep memory for their next elements, a B-tree map a leaf.
    fn give_empty_collections_back(&mut self) {
        self.sends = BTreeMap::new();
        self.leaving = BTreeMap::new();
        self.recvs = BTreeMap::new();
        self.foreseen = BTreeSet::new();
        self.recv_deadlines = Deadlines::default();
        self.send_deadlines = Deadlines::default();
        self.streams = VecDeque::new();
        self.arrived = Vec::new();
        self.closing = Vec::new();
        self.outgoing.shrink();
        self.control.shrink();
    }
}
