//! Reordering buffers: frames of a stream that wait for a missing earlier frame.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::packets::DataPacket;
use crate::psn;
use crate::shares::{Part, Shares, Source};

/// The part of all frames that one host can have in the buffers while no other one has any.
const OF_HOST: Part = Part::new(4, 5);

/// The memory limit that the reordering buffers of all streams share, and its statistics.
#[derive(Debug)]
pub(crate) struct BufferBudget {
    shares: Shares,
    bytes: usize,
    /// Frames that were buffered.
    pub(crate) kept: u64,
    /// Highest number of frames at a time.
    pub(crate) peak: u64,
    /// Highest number of bytes at a time.
    pub(crate) peak_bytes: u64,
    /// Frames that exceeded the limit, or the share of their source.
    pub(crate) refused: u64,
}

impl BufferBudget {
    pub(crate) fn new(max_frames: usize) -> Self {
        Self {
            shares: Shares::new(max_frames, OF_HOST, None),
            bytes: 0,
            kept: 0,
            peak: 0,
            peak_bytes: 0,
            refused: 0,
        }
    }

    pub(crate) fn frames(&self) -> usize {
        self.shares.used()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reserves room for a frame. Counts a refusal and returns `false` if there is no room.
    fn admit(&mut self, source: &Source, bytes: usize) -> bool {
        if !self.shares.allow(source) {
            self.refused += 1;
            return false;
        }
        self.shares.take(source, 1);
        self.bytes += bytes;
        self.kept += 1;
        self.peak = self.peak.max(self.frames() as u64);
        self.peak_bytes = self.peak_bytes.max(self.bytes as u64);
        true
    }

    fn leave(&mut self, source: &Source, bytes: usize) {
        self.shares.give_back(source, 1);
        self.bytes -= bytes;
    }
}

/// Frames of a stream in the order of their PSNs. Empty the buffer before you drop it, because it
/// shares its limit.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    /// Whose share of the limit the frames take.
    source: Source,
    frames: VecDeque<HeldFrame>,
}

#[derive(Debug)]
pub(crate) struct HeldFrame {
    pub(crate) psn: u32,
    /// `None` for an acknowledgement.
    pub(crate) data: Option<DataPacket>,
    pub(crate) frame: Vec<u8>,
}

impl ReorderBuffer {
    pub(crate) fn new(source: Source) -> Self {
        let frames = VecDeque::new();
        Self { source, frames }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The frame with the lowest PSN.
    pub(crate) fn first(&self) -> Option<&HeldFrame> {
        self.frames.front()
    }

    pub(crate) fn data(&self) -> impl DoubleEndedIterator<Item = (DataPacket, &[u8])> + '_ {
        let frames = self.frames.iter();
        frames.filter_map(|waiting| Some((waiting.data?, &waiting.frame[..])))
    }

    pub(crate) fn psns(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.data().map(|(data, _)| data.psn)
    }

    /// The PSNs of the data packets after this one, in order.
    pub(crate) fn psns_after(&self, psn: u32) -> impl Iterator<Item = u32> + '_ {
        let at = self
            .frames
            .partition_point(|waiting| psn::distance(psn, waiting.psn) <= 0);
        let after = self.frames.range(at..);
        after.filter_map(|waiting| Some(waiting.data?.psn))
    }

    /// Returns the frame as the error if there is no room.
    pub(crate) fn push(
        &mut self,
        data: DataPacket,
        frame: Vec<u8>,
        room: &mut BufferBudget,
    ) -> Result<(), Vec<u8>> {
        self.insert(data.psn, Some(data), frame, room)
    }

    /// Buffers an acknowledgement behind all frames that wait now.
    pub(crate) fn push_behind(
        &mut self,
        frame: Vec<u8>,
        room: &mut BufferBudget,
    ) -> Result<(), Vec<u8>> {
        let psn = self.frames.back().map_or(0, |waiting| waiting.psn);
        self.insert(psn, None, frame, room)
    }

    pub(crate) fn holds(&self, psn: u32) -> bool {
        let at = self
            .frames
            .partition_point(|waiting| psn::distance(psn, waiting.psn) < 0);
        let mut same = self.frames.range(at..).take_while(|w| w.psn == psn);
        same.any(|waiting| waiting.data.is_some())
    }

    fn insert(
        &mut self,
        psn: u32,
        data: Option<DataPacket>,
        frame: Vec<u8>,
        room: &mut BufferBudget,
    ) -> Result<(), Vec<u8>> {
        if !room.admit(&self.source, frame.len()) {
            return Err(frame);
        }
        let after = |waiting: &&HeldFrame| psn::distance(psn, waiting.psn) > 0;
        let at = self.frames.len() - self.frames.iter().rev().take_while(after).count();
        self.frames.insert(at, HeldFrame { psn, data, frame });
        Ok(())
    }

    /// Removes the frame with the lowest PSN.
    pub(crate) fn pop(&mut self, room: &mut BufferBudget) -> Option<HeldFrame> {
        let waiting = self.frames.pop_front()?;
        room.leave(&self.source, waiting.frame.len());
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::test::data;
    use alloc::vec;

    fn buffer(host: u8) -> ReorderBuffer {
        ReorderBuffer::new(Source::numbered(1, host))
    }

    #[test]
    fn one_source_does_not_take_all_the_room() {
        let (mut many, mut other) = (buffer(1), buffer(2));
        let mut room = BufferBudget::new(2048);
        let held = (0..3000).filter(|psn| many.push(data(*psn), vec![0], &mut room).is_ok());
        assert_eq!(held.count(), 1639, "four fifths");
        for psn in 0..300 {
            assert_eq!(other.push(data(psn), vec![0], &mut room), Ok(()));
        }
        while many.pop(&mut room).is_some() {}
        assert_eq!(room.frames(), 300);
    }

    #[test]
    fn frames_come_out_in_order_also_across_the_wrap() {
        let (mut buffer, mut room) = (buffer(1), BufferBudget::new(7));
        assert!(!buffer.holds(0));
        for psn in [0xFF_FFFE, 1, 0, 0xFF_FFFF, 0] {
            assert_eq!(buffer.push(data(psn), vec![0; 10], &mut room), Ok(()));
        }
        assert_eq!(buffer.push_behind(vec![1; 5], &mut room), Ok(()));
        assert_eq!(buffer.push(data(5), vec![2], &mut room), Err(vec![2]));
        assert_eq!((room.frames(), room.bytes, room.refused), (6, 55, 1));
        assert!(buffer.psns_after(0xFF_FFFF).eq([0, 0, 1]));
        assert!(buffer.holds(0) && buffer.holds(0xFF_FFFF) && !buffer.holds(2));
        let out: Vec<_> = core::iter::from_fn(|| buffer.pop(&mut room)).collect();
        let psns: Vec<_> = out.iter().map(|waiting| waiting.psn).collect();
        assert_eq!(psns, [0xFF_FFFE, 0xFF_FFFF, 0, 0, 1, 1]);
        assert!(out[4].data.is_some() && out[5].data.is_none());
        assert_eq!((room.frames(), room.bytes, room.peak), (0, 0, 6));
    }
}
