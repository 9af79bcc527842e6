//! Chunks that later ones have overtaken, and how late they come (P5.0.11).

use core::ops::Range;

use alloc::vec::Vec;

use crate::scheme::{Arrivals, MessageId};

/// Maximum number of chunks watched at a time. While there are more, the others are not watched:
/// then the lateness comes from a sample.
const MAX_WATCHED: usize = 32;

/// Watches chunks that were passed before they arrived.
///
/// A chunk that comes sooner than a repair can was late, and its first transmission was not lost.
#[derive(Debug, Default)]
pub(super) struct Overtaken {
    watched: Vec<Hole>,
    /// The shortest time in which a repair can come.
    repair_ns: u64,
    /// The late chunks since they were last taken.
    late: Vec<LateChunk>,
}

/// A chunk that arrived after later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateChunk {
    /// Its message, and its number there.
    pub chunk: (MessageId, u32),
    /// How long after the first later chunk it arrived.
    pub late_ns: u64,
}

/// A chunk that was passed before it arrived.
#[derive(Debug)]
struct Hole {
    chunk: (MessageId, u32),
    position: u32,
    passed_ns: u64,
    /// Whether it was computed from others. Then its bit does not show that it has arrived.
    is_rebuilt: bool,
    /// Whether it counts as lost.
    is_counted: bool,
}

impl Overtaken {
    /// Returns how many more chunks can be watched.
    pub(super) fn room(&self) -> usize {
        MAX_WATCHED - self.watched.len()
    }

    /// Watches a chunk that was passed now, if there is room.
    pub(super) fn watch(&mut self, now_ns: u64, chunk: (MessageId, u32), position: u32) {
        if self.room() > 0 {
            self.watched.push(Hole {
                chunk,
                position,
                passed_ns: now_ns,
                is_rebuilt: false,
                is_counted: false,
            });
        }
    }

    /// Looks for chunks of the message that have arrived. Returns how many of them count as lost.
    pub(super) fn look(
        &mut self,
        now_ns: u64,
        repair_ns: u64,
        message: u64,
        arrivals: &dyn Arrivals,
    ) -> u64 {
        self.repair_ns = repair_ns;
        self.remove_late(now_ns, |hole| {
            let (of, chunk) = hole.chunk;
            of == message && !hole.is_rebuilt && {
                let word = arrivals.word(of, chunk / 64);
                word >> (chunk % 64) & 1 != 0
            }
        })
    }

    /// Handles a packet of a chunk that was rebuilt before, or whose message has ended. Returns how
    /// many chunks that count as lost it shows to be late: one or none.
    pub(super) fn handle_late(&mut self, now_ns: u64, chunk: (MessageId, u32)) -> u64 {
        self.remove_late(now_ns, |hole| hole.chunk == chunk)
    }

    /// Records that a chunk was computed from others.
    pub(super) fn rebuilt(&mut self, chunk: (MessageId, u32)) {
        let mut watched = self.watched.iter_mut();
        if let Some(hole) = watched.find(|hole| hole.chunk == chunk) {
            hole.is_rebuilt = true;
        }
    }

    /// Records that these positions of a message were judged: those that are watched count as lost.
    pub(super) fn judged(&mut self, message: u64, positions: &Range<u32>) {
        for hole in &mut self.watched {
            hole.is_counted |= hole.chunk.0 == message && positions.contains(&hole.position);
        }
    }

    /// Returns the late chunks since the last call, or the first of them if there are many.
    pub(super) fn take_late(&mut self) -> Vec<LateChunk> {
        core::mem::take(&mut self.late)
    }

    /// Removes the chunks that `has_arrived` names, and those that are missing for so long that a
    /// repair may come.
    fn remove_late(&mut self, now_ns: u64, has_arrived: impl Fn(&Hole) -> bool) -> u64 {
        let (repair_ns, late) = (self.repair_ns, &mut self.late);
        let mut counted = 0;
        self.watched.retain(|hole| {
            let late_ns = now_ns.saturating_sub(hole.passed_ns);
            if late_ns >= repair_ns {
                return false;
            }
            let is_late = has_arrived(hole);
            if is_late {
                counted += u64::from(hole.is_counted);
                if late.len() < MAX_WATCHED {
                    let chunk = hole.chunk;
                    late.push(LateChunk { chunk, late_ns });
                }
            }
            !is_late
        });
        counted
    }
}
