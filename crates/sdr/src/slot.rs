//! One message slot: who is in it, and counts of what has arrived.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A message's length, once known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Bytes of the message.
    pub(crate) length: u64,
    /// Whether it carries a user immediate.
    pub(crate) has_immediate: bool,
}

/// What a slot is doing with its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The receive is over; its bitmap can still be read.
    Closed = 0,
    /// The last message's state is being wiped for this one.
    Opening = 1,
    /// Packets are taken.
    Open = 2,
}

/// Which message a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupant {
    pub(crate) message: u64,
    pub(crate) phase: Phase,
}

/// The words of a slot beside its bitmaps: one cache line.
///
/// `occupant` decides whose the others are. Whoever holds the control state writes `occupant`,
/// `capacity` and `extent`; whoever takes packets in writes the rest.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Slot {
    /// 0: never used; else message + 1, shifted left by two, and the phase.
    occupant: AtomicU64,
    /// 0: not known; else length + 1, shifted left by one, and whether an immediate comes.
    extent: AtomicU64,
    /// Bytes of the posted buffer.
    pub(crate) capacity: AtomicU64,
    /// Payload bytes arrived, duplicates left out.
    pub(crate) bytes: AtomicU64,
    /// Packets arrived, duplicates left out.
    pub(crate) packets: AtomicU32,
    /// Chunks complete.
    pub(crate) chunks: AtomicU32,
    /// One past the highest packet that has arrived.
    pub(crate) seen_packets: AtomicU32,
    /// A bit for every fragment of the user immediate that has arrived.
    fragments: AtomicU32,
    /// The fragments, in their places.
    immediate: AtomicU32,
}

impl Slot {
    pub(crate) fn occupant(&self) -> Option<Occupant> {
        let word = self.occupant.load(Ordering::Acquire);
        Some(Occupant {
            message: (word >> 2).checked_sub(1)?,
            phase: match word & 3 {
                0 => Phase::Closed,
                1 => Phase::Opening,
                _ => Phase::Open,
            },
        })
    }

    /// Message numbers must stay below 2^61, which `qp` sees to.
    pub(crate) fn set_occupant(&self, occupant: Occupant) {
        let word = ((occupant.message + 1) << 2) | occupant.phase as u64;
        self.occupant.store(word, Ordering::Release);
    }

    pub(crate) fn extent(&self) -> Option<Extent> {
        let word = self.extent.load(Ordering::Acquire);
        Some(Extent {
            length: (word >> 1).checked_sub(1)?,
            has_immediate: word & 1 == 1,
        })
    }

    pub(crate) fn set_extent(&self, extent: Option<Extent>) {
        let word = extent.map_or(0, |extent| {
            ((extent.length + 1) << 1) | u64::from(extent.has_immediate)
        });
        self.extent.store(word, Ordering::Release);
    }

    /// Back to a message of which nothing has arrived.
    pub(crate) fn wipe(&self, capacity: u64) {
        self.set_extent(None);
        self.capacity.store(capacity, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        for count in [
            &self.packets,
            &self.chunks,
            &self.seen_packets,
            &self.fragments,
            &self.immediate,
        ] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Notes that packet `packet` has arrived.
    pub(crate) fn see(&self, packet: u32) {
        // Most packets come in order, some do not: look before a read-modify-write.
        if self.seen_packets.load(Ordering::Relaxed) <= packet {
            self.seen_packets
                .fetch_max(packet.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// Keeps the first copy of a fragment of the user immediate.
    pub(crate) fn keep_fragment(&self, index: u32, bits_in_place: u32) {
        let flag = 1_u32.checked_shl(index).unwrap_or(0);
        if self.fragments.load(Ordering::Relaxed) & flag == 0 {
            self.immediate.fetch_or(bits_in_place, Ordering::Relaxed);
            self.fragments.fetch_or(flag, Ordering::Release);
        }
    }

    /// The user immediate, once `count` fragments are there.
    pub(crate) fn immediate(&self, count: u32) -> Option<u32> {
        (self.fragments.load(Ordering::Acquire).count_ones() >= count)
            .then(|| self.immediate.load(Ordering::Relaxed))
    }
}
