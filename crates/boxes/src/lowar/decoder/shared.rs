//! What all streams of the receiving half share.

use alloc::vec::Vec;

use crate::lowar::coding::Pool;
use crate::lowar::counters::Counters;
use crate::packets::Data;
use crate::psn;
use crate::reorder::{ReorderBuffer, Room, Waiting};
use crate::streams::Key;
use crate::timers::Timers;

/// Units, the room for frames that wait, and the times at which they wait no longer.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pool: Pool,
    pub(super) deadlines: Timers,
    pub(super) hold_ns: u64,
    pub(super) counters: Counters,
    pub(super) room: Room,
}

/// Frames of a stream that wait for one before them, until the hold time of the first is over.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) buffer: ReorderBuffer,
    deadline_ns: Option<u64>,
}

impl Held {
    /// Keeps a data packet. Gives the frame back if there is no room.
    pub(super) fn push(
        &mut self,
        now_ns: u64,
        key: Key,
        data: Data,
        frame: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), Vec<u8>> {
        self.buffer.push(data, frame, &mut shared.room)?;
        self.limit(now_ns, key, shared);
        Ok(())
    }

    /// Keeps an acknowledgement behind what waits now.
    pub(super) fn push_behind(
        &mut self,
        now_ns: u64,
        key: Key,
        frame: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), Vec<u8>> {
        self.buffer.push_behind(frame, &mut shared.room)?;
        self.limit(now_ns, key, shared);
        Ok(())
    }

    fn limit(&mut self, now_ns: u64, key: Key, shared: &mut Shared) {
        let at_ns = now_ns.saturating_add(shared.hold_ns);
        let at_ns = self.deadline_ns.unwrap_or(at_ns);
        let deadline_ns = &mut self.deadline_ns;
        shared.deadlines.set(key, deadline_ns, Some(at_ns));
    }

    /// Takes out the first frame if it is before a distance from `base`.
    pub(super) fn pop_before(
        &mut self,
        key: Key,
        base: u32,
        before: i32,
        shared: &mut Shared,
    ) -> Option<Waiting> {
        let first = self.buffer.first()?;
        if psn::distance(base, first.psn) >= before {
            return None;
        }
        let waiting = self.buffer.pop(&mut shared.room);
        if self.buffer.is_empty() {
            let deadline_ns = &mut self.deadline_ns;
            shared.deadlines.set(key, deadline_ns, None);
        }
        waiting
    }
}
