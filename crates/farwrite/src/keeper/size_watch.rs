//! Notices that packets of full size no longer arrive.

use farwrite_path::{Path, Search};

use super::PathShrunk;
use super::sizes::{candidates, datagram_bytes, payload_bytes};

/// If neither end makes a step for this long, the packet size is tested. It is longer than the time
/// between two reports of steps, which programs may send once a second.
const STALLED_NS: u64 = 3_000_000_000;
/// The smallest MTU that is tested.
const LEAST_MTU: u32 = 256;

/// Tests the packet size of one path when nothing moves.
#[derive(Debug)]
pub(super) struct SizeWatch {
    moved: u64,
    moved_ns: u64,
    /// Whether the size is being tested.
    is_testing: bool,
}

/// What a watch has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Nothing,
    /// A test has begun: the path has probes to send.
    Tests,
    Shrunk(PathShrunk),
}

impl SizeWatch {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            moved: 0,
            moved_ns: now_ns,
            is_testing: false,
        }
    }

    /// Begins a test if `moved` has not changed for some time, and ends it when its result is known.
    pub(super) fn look(
        &mut self,
        path: &mut Path,
        (now_ns, moved): (u64, u64),
        is_held_up: bool,
        mtu: u32,
    ) -> Finding {
        if is_held_up || std::mem::replace(&mut self.moved, moved) != moved {
            self.moved_ns = now_ns;
            self.is_testing = false;
        }
        let Some(route) = path.route() else {
            return Finding::Nothing;
        };
        if now_ns.saturating_sub(self.moved_ns) < STALLED_NS {
            return Finding::Nothing;
        }
        if !std::mem::replace(&mut self.is_testing, true) {
            let smaller = candidates(route.peer, LEAST_MTU, None).into_iter();
            let full = datagram_bytes(mtu);
            let sizes = smaller.filter(|bytes| *bytes < full).chain([full]);
            path.search(Search::new(sizes));
            return Finding::Tests;
        }
        let Some(carries) = path.largest().map(payload_bytes) else {
            return Finding::Nothing;
        };
        // If the size is not the cause, test again after the same time without movement.
        self.moved_ns = now_ns;
        self.is_testing = false;
        if carries >= mtu {
            return Finding::Nothing;
        }
        Finding::Shrunk(PathShrunk {
            peer: route.peer,
            mtu,
            carries,
        })
    }
}
