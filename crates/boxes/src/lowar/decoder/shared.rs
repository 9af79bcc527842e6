//! What all streams of the receiving half share.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::lowar::coding::Pool;
use crate::lowar::counters::Counters;
use crate::lowar::messages::Data;
use crate::lowar::streams::Key;
use crate::psn;

/// Units, the room for frames that wait, and the times at which they wait no longer.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) pool: Pool,
    pub(super) deadlines: BTreeSet<(u64, Key)>,
    pub(super) hold_ns: u64,
    pub(super) counters: Counters,
    pub(super) held: usize,
    pub(super) max_held: usize,
}

/// Frames of a stream that wait for one before them.
#[derive(Debug, Default)]
pub(super) struct Held {
    frames: Vec<Waiting>,
    deadline_ns: Option<u64>,
}

#[derive(Debug)]
struct Waiting {
    psn: u32,
    /// `None` for an acknowledgement.
    data: Option<Data>,
    frame: Vec<u8>,
}

impl Held {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The PSNs of the data packets.
    pub(super) fn psns(&self) -> impl Iterator<Item = u32> + '_ {
        let data = self.frames.iter().filter(|waiting| waiting.data.is_some());
        data.map(|waiting| waiting.psn)
    }

    /// The data packets, with their frames.
    pub(super) fn data(&self) -> impl Iterator<Item = (Data, &[u8])> + '_ {
        let frames = self.frames.iter();
        frames.filter_map(|waiting| Some((waiting.data?, &waiting.frame[..])))
    }

    /// Keeps a data packet. Gives the frame back if there is no room.
    pub(super) fn push(
        &mut self,
        now_ns: u64,
        key: Key,
        data: Data,
        frame: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), Vec<u8>> {
        self.insert(now_ns, key, data.psn, Some(data), frame, shared)
    }

    /// Keeps an acknowledgement behind what waits now.
    pub(super) fn push_behind(
        &mut self,
        now_ns: u64,
        key: Key,
        frame: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), Vec<u8>> {
        let first = self.frames.first().map_or(0, |waiting| waiting.psn);
        let after = |waiting: &Waiting| psn::distance(first, waiting.psn);
        let last = self.frames.iter().map(after).max().unwrap_or(0);
        let psn = psn::add(first, last.max(0).unsigned_abs());
        self.insert(now_ns, key, psn, None, frame, shared)
    }

    fn insert(
        &mut self,
        now_ns: u64,
        key: Key,
        psn: u32,
        data: Option<Data>,
        frame: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), Vec<u8>> {
        if shared.held >= shared.max_held {
            shared.counters.held_full += 1;
            return Err(frame);
        }
        self.frames.push(Waiting { psn, data, frame });
        shared.held += 1;
        shared.counters.held += 1;
        let peak = &mut shared.counters.peak_held;
        *peak = (*peak).max(shared.held as u64);
        if self.deadline_ns.is_none() {
            let at_ns = now_ns.saturating_add(shared.hold_ns);
            self.deadline_ns = Some(at_ns);
            shared.deadlines.insert((at_ns, key));
        }
        Ok(())
    }

    /// Takes out, in their order, the frames that are before a distance from `base`.
    pub(super) fn drain(
        &mut self,
        key: Key,
        base: u32,
        before: i32,
        shared: &mut Shared,
    ) -> Vec<(Option<Data>, Vec<u8>)> {
        let distance = |waiting: &Waiting| psn::distance(base, waiting.psn);
        self.frames.sort_by_key(distance);
        let split = self.frames.partition_point(|w| distance(w) < before);
        let out: Vec<_> = self.frames.drain(..split).collect();
        shared.held -= out.len();
        if self.frames.is_empty()
            && let Some(at_ns) = self.deadline_ns.take()
        {
            shared.deadlines.remove(&(at_ns, key));
        }
        out.into_iter().map(|w| (w.data, w.frame)).collect()
    }
}
