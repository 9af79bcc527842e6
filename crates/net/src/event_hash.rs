//! A hash of the sequence of events.

use crate::ids::PortId;

/// A hash of everything that happens to frames, in order. Different runs have different hashes,
/// except with probability 2^-64.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace(u64);

/// An event of a frame at a port.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum EventKind {
    Arrived = 1,
    Queued,
    Marked,
    Trimmed,
    Sent,
    Dropped,
}

impl Trace {
    pub(crate) fn note(&mut self, now_ns: u64, step: EventKind, port: PortId, serial: u64) {
        self.take(now_ns);
        self.take(u64::from(port.0) << 8 | step as u64);
        self.take(serial);
    }

    pub(crate) fn hash(self) -> u64 {
        self.0
    }

    fn take(&mut self, word: u64) {
        // A multiplicative hash: the odd constant is 2^64 divided by the golden ratio.
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
