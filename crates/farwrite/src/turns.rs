//! Whose turn it is to send: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).
//!
//! Every queue pair may send the same number of bytes in its turn. A queue pair for which the
//! fabric has no room keeps the rest of its turn, and is first in line at the next poll. So queue
//! pairs that share a full fabric send equally much, but for a turn, whatever their numbers.

use crate::handle::QueuePair;
use crate::pair::{Halt, Turn};

/// Bytes sent and encoded after which a poll ends, so that arrivals do not wait for long.
const POLL_BYTES: u64 = 1 << 20;

/// The line of queue pairs that want to send.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Number of the queue pair that is first in line.
    first: u32,
    /// Turns in this poll, bytes sent in them, and bytes sent or encoded.
    turns: usize,
    sent_bytes: u64,
    work_bytes: u64,
    /// The first in line for which the fabric had no room.
    cut: Option<QueuePair>,
}

impl Turns {
    /// Begins a poll: brings queue pairs, which come in the order of their numbers, into line.
    pub(crate) fn line_up(&mut self, queue_pairs: &mut [QueuePair]) {
        let before = queue_pairs.partition_point(|id| id.0 < self.first);
        queue_pairs.rotate_left(before);
        *self = Self {
            first: self.first,
            ..Self::default()
        };
    }

    /// Whether the next in line has its turn in this poll.
    pub(crate) fn may_begin(&self) -> bool {
        self.work_bytes < POLL_BYTES
    }

    /// The next in line has had its turn.
    pub(crate) fn note(&mut self, id: QueuePair, turn: &Turn, encoded_bytes: u64) {
        // A queue pair of which the fabric takes nothing does not stay first: its own queue in the
        // fabric may be full for long, and those behind it have to take turns meanwhile.
        let is_stuck = self.turns == 0 && turn.sent_bytes == 0;
        if turn.halt == Halt::Full && !is_stuck {
            self.cut.get_or_insert(id);
        }
        self.turns += 1;
        self.sent_bytes += turn.sent_bytes;
        self.work_bytes += turn.sent_bytes + encoded_bytes;
    }

    /// Ends a poll. `waiting` is the first in line that has not had its turn.
    pub(crate) fn end(&mut self, waiting: Option<QueuePair>) {
        let cut = self.cut.filter(|_| self.sent_bytes > 0);
        if let Some(first) = waiting.or(cut) {
            self.first = first.0;
        }
    }
}
