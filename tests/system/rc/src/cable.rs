//! The cable behind a NIC: frames enter it one after the other, at its rate, and leave it after its delay.

use std::collections::VecDeque;
use std::num::NonZeroU64;

/// Preamble, start, frame check sequence and gap of a frame (IEEE 802.3), in bytes.
const FRAMING_BYTES: u64 = 24;
/// A data packet may wait for its turn at the cable for this long, so that a process that wakes late leaves no gap
/// between two packets.
const AHEAD_NS: u64 = 100_000;

pub(crate) struct Cable {
    /// `None`: frames take no time to enter.
    rate_bps: Option<NonZeroU64>,
    delay_ns: u64,
    /// When the last frame has entered.
    free_ns: u64,
    /// Frames on the cable, and when each leaves it.
    frames: VecDeque<(u64, Vec<u8>)>,
}

impl Cable {
    pub(crate) fn new(rate_bps: Option<NonZeroU64>, delay_ns: u64) -> Self {
        Self {
            rate_bps,
            delay_ns,
            free_ns: 0,
            frames: VecDeque::new(),
        }
    }

    /// When a data packet may be put on the cable.
    pub(crate) fn opens_ns(&self) -> u64 {
        self.free_ns.saturating_sub(AHEAD_NS)
    }

    /// Puts a frame on the cable, behind those that are on it.
    pub(crate) fn put(&mut self, now_ns: u64, frame: Vec<u8>) {
        let bits = 8 * (frame.len() as u64 + FRAMING_BYTES);
        let enters_ns = self.rate_bps.map_or(0, |bps| bits * 1_000_000_000 / bps);
        self.free_ns = self.free_ns.max(now_ns) + enters_ns;
        self.frames.push_back((self.free_ns + self.delay_ns, frame));
    }

    /// When the next frame leaves the cable.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.frames.front().map(|(leaves_ns, _)| *leaves_ns)
    }

    /// Takes a frame that has left the cable.
    pub(crate) fn take(&mut self, now_ns: u64) -> Option<Vec<u8>> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.frames.pop_front().map(|(_, frame)| frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame that takes 1 ms to enter a cable of 1 Mbit/s.
    fn frame() -> Vec<u8> {
        vec![0; 125 - 24]
    }

    #[test]
    fn frames_leave_at_the_rate_after_the_delay() {
        const MS: u64 = 1_000_000;
        let mut cable = Cable::new(NonZeroU64::new(1_000_000), 5 * MS);
        cable.put(10 * MS, frame());
        cable.put(10 * MS, frame());
        assert_eq!(cable.opens_ns(), 12 * MS - AHEAD_NS);
        assert_eq!(cable.take(16 * MS - 1), None);
        assert_eq!(cable.take(16 * MS), Some(frame()));
        assert_eq!(cable.next_ns(), Some(17 * MS));
        // After a time without frames, the rate counts from the next one on.
        cable.put(20 * MS, frame());
        assert_eq!(cable.take(30 * MS), Some(frame()));
        assert_eq!(cable.next_ns(), Some(26 * MS));
    }

    #[test]
    fn a_cable_without_rate_and_delay_keeps_nothing() {
        let mut cable = Cable::new(None, 0);
        cable.put(7, frame());
        assert_eq!(cable.take(7), Some(frame()));
        assert!(cable.next_ns().is_none() && cable.opens_ns() <= 7);
    }
}
