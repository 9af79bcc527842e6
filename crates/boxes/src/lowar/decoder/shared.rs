//! State that all streams of the receiving half share.

use alloc::vec::Vec;

use crate::lowar::coding::UnitPool;
use crate::lowar::counters::Counters;
use crate::packets::DataPacket;
use crate::psn;
use crate::reorder::{BufferBudget, HeldFrame, ReorderBuffer};
use crate::shares::Source;
use crate::streams::StreamKey;
use crate::timers::Timers;

/// Coding units, the limit for held frames, and the timers that end their wait.
#[derive(Debug)]
pub(super) struct DecoderShared {
    pub(super) pool: UnitPool,
    pub(super) deadlines: Timers,
    pub(super) hold_ns: u64,
    pub(super) counters: Counters,
    pub(super) room: BufferBudget,
}

/// Frames of a stream that wait for a missing earlier packet, at most until the hold time of the
/// first frame is over.
#[derive(Debug)]
pub(super) struct HeldFrames {
    pub(super) buffer: ReorderBuffer,
    deadline_ns: Option<u64>,
}

impl HeldFrames {
    pub(super) fn new(source: Source) -> Self {
        Self {
            buffer: ReorderBuffer::new(source),
            deadline_ns: None,
        }
    }

    /// Returns the frame as the error if there is no room.
    pub(super) fn push(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        data: DataPacket,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
    ) -> Result<(), Vec<u8>> {
        self.buffer.push(data, frame, &mut shared.room)?;
        self.limit(now_ns, key, shared);
        Ok(())
    }

    /// Holds an acknowledgement behind all frames that wait now.
    pub(super) fn push_behind(
        &mut self,
        now_ns: u64,
        key: StreamKey,
        frame: Vec<u8>,
        shared: &mut DecoderShared,
    ) -> Result<(), Vec<u8>> {
        self.buffer.push_behind(frame, &mut shared.room)?;
        self.limit(now_ns, key, shared);
        Ok(())
    }

    fn limit(&mut self, now_ns: u64, key: StreamKey, shared: &mut DecoderShared) {
        let at_ns = now_ns.saturating_add(shared.hold_ns);
        let at_ns = self.deadline_ns.unwrap_or(at_ns);
        let deadline_ns = &mut self.deadline_ns;
        shared.deadlines.set(key, deadline_ns, Some(at_ns));
    }

    /// Removes the first frame if its distance from `base` is below `before`.
    pub(super) fn pop_before(
        &mut self,
        key: StreamKey,
        base: u32,
        before: i32,
        shared: &mut DecoderShared,
    ) -> Option<HeldFrame> {
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
