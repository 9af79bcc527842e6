//! Returns the spare memory of a queue pair that has no open messages.

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Fabric, FabricError};

use super::Pair;

/// How long a queue pair keeps spare memory for the next message, in nanoseconds.
const KEEP_NS: u64 = 1_000_000_000;

/// Whether a queue pair has returned its spare memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SpareMemory {
    /// A message was open at the last poll.
    #[default]
    Busy,
    /// No message is open. The queue pair returns its memory at this time.
    Due(u64),
    Returned,
}

impl SpareMemory {
    pub(super) fn next_ns(self) -> Option<u64> {
        match self {
            Self::Due(at_ns) => Some(at_ns),
            Self::Busy | Self::Returned => None,
        }
    }
}

impl Pair {
    fn is_idle(&self) -> bool {
        self.send.is_idle() && self.recv.is_idle() && !self.control.packets.is_waiting()
    }

    /// Returns spare memory after no message was open for [`KEEP_NS`].
    pub(super) fn return_spare_memory<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        now_ns: u64,
    ) -> Result<(), FabricError> {
        if !self.is_idle() {
            self.spare_memory = SpareMemory::Busy;
            return Ok(());
        }
        match self.spare_memory {
            SpareMemory::Busy => {
                self.spare_memory = SpareMemory::Due(now_ns.saturating_add(KEEP_NS));
            }
            SpareMemory::Due(at_ns) if at_ns <= now_ns => {
                self.spare_memory = SpareMemory::Returned;
                // Empty collections keep memory for their next elements. A B-tree map keeps a leaf.
                self.send.shrink();
                self.recv.shrink();
                self.control.packets.shrink();
                self.halves.rest();
                self.recv.losses.rest();
                self.parity_memory.trim(fabric, 0)?;
            }
            SpareMemory::Due(_) | SpareMemory::Returned => {}
        }
        Ok(())
    }
}
