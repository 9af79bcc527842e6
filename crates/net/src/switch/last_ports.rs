//! The last port of each flow, in bounded memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;

/// Flows in each of the two tables.
const MAX_FLOWS: usize = 1 << 15;

type Table = HashMap<u64, u16, BuildHasherDefault<IdentityHasher>>;

/// The port that the last frame of each flow took, by the hash of the flow. A long run has more
/// flows than memory should hold, most of them finished. A flow is forgotten when at least
/// `MAX_FLOWS` other flows have sent since its last frame.
#[derive(Debug, Default)]
pub(crate) struct LastPorts {
    /// The flows that have sent since the tables were last exchanged.
    recent: Table,
    /// Earlier flows.
    older: Table,
}

impl LastPorts {
    /// Records the port of a flow. Returns the one before, if the flow is known.
    pub(crate) fn replace(&mut self, hash: u64, port: u16) -> Option<u16> {
        let before = self.recent.insert(hash, port);
        let before = before.or_else(|| self.older.remove(&hash));
        if self.recent.len() >= MAX_FLOWS {
            self.older = mem::take(&mut self.recent);
        }
        before
    }
}

/// A hasher for keys that are hashes already: the identity.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_flows_leave_and_active_ones_stay() {
        let mut last = LastPorts::default();
        let (first, active) = (u64::MAX, u64::MAX - 1);
        assert_eq!([first, active].map(|flow| last.replace(flow, 7)), [None; 2]);
        for flow in 0..4 * MAX_FLOWS as u64 {
            assert_eq!(last.replace(flow, 1), None);
            if flow % 1000 == 0 {
                assert_eq!(last.replace(active, 7), Some(7));
            }
            assert!(last.recent.len() + last.older.len() <= 2 * MAX_FLOWS);
        }
        assert_eq!(last.replace(first, 7), None);
        // The latest flows are known.
        let latest = 3 * MAX_FLOWS as u64 + 1000..4 * MAX_FLOWS as u64;
        for flow in latest {
            assert_eq!(last.replace(flow, 2), Some(1));
        }
    }
}
