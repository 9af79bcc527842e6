//! One message at the receiver of selective repeat: its cumulative point and its ACKs.

use core::ops::Range;

use alloc::vec::Vec;
use farwrite_wire::control::Ack;

use crate::arrived::cumulative;
use crate::scheme::Arrivals;

/// Most ACKs that may describe one message in one round (P5.1.4).
const MAX_ACKS_A_ROUND: u32 = 16;

#[derive(Debug)]
pub(crate) struct AckState {
    number: u64,
    chunks: u32,
    /// Chunks `0..cumulative` have arrived.
    pub(crate) cumulative: u32,
    lap: AckRound,
    acks_this_round: u32,
}

/// How far the selective parts of successive ACKs have advanced around the window.
#[derive(Debug)]
struct AckRound {
    /// Bitmap word at which the next selective part begins. If it is below the cumulative point,
    /// the part begins at that point.
    next_word: u32,
    /// Number of words still to report before this round covers everything that had arrived when it
    /// began.
    left: u32,
    /// Whether something has arrived since the round began.
    stale: bool,
}

/// The result of [`AckState::ack`].
pub(crate) enum NextAck {
    /// Nothing has arrived, so there is nothing to report.
    None,
    /// There is more to report in this round.
    More(Ack),
    /// The round has ended. The next round reports what it left out.
    Unfinished(Ack),
    /// The round has ended, and covers everything that had arrived.
    Last(Ack),
}

impl AckState {
    pub(crate) fn new(number: u64, chunks: u32) -> Self {
        Self {
            number,
            chunks,
            cumulative: 0,
            lap: AckRound {
                next_word: 0,
                left: 0,
                stale: true,
            },
            acks_this_round: 0,
        }
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.cumulative == self.chunks
    }

    /// Handles the arrival of packets of the message.
    pub(crate) fn arrived(&mut self, arrivals: &dyn Arrivals) {
        self.lap.stale = true;
        self.advance(arrivals);
    }

    fn advance(&mut self, arrivals: &dyn Arrivals) {
        self.cumulative = cumulative(arrivals, self.number, self.cumulative, self.chunks);
    }

    /// The next ACK of a round. Its selective part begins where the last one ended, and wraps
    /// around in `cumulative..seen`. A round ends when it has reported everything, or has reached
    /// its maximum length.
    pub(crate) fn ack(&mut self, arrivals: &dyn Arrivals, max_bytes: usize) -> NextAck {
        self.advance(arrivals);
        let seen = arrivals.seen(self.number.into()).min(self.chunks);
        let seen = seen.max(self.cumulative);
        if seen == 0 {
            return NextAck::None;
        }
        let window = self.cumulative / 64..seen.div_ceil(64);
        if self.acks_this_round == 0 && self.lap.stale {
            self.lap.stale = false;
            self.lap.left = window.end - window.start;
        }
        let words = if self.cumulative == seen {
            self.lap.left = 0;
            window.start..window.start
        } else {
            let room = u32::try_from(max_bytes / 8).unwrap_or(u32::MAX);
            self.lap.advance(&window, room.max(1))
        };
        let window_start = words.start * 64;
        let mut bits = Vec::with_capacity(words.len() * 8);
        for word in words {
            bits.extend_from_slice(&arrivals.word(self.number.into(), word).to_le_bytes());
        }
        bits.truncate((seen - window_start.min(seen)).div_ceil(8) as usize);
        let ack = Ack {
            message: self.number,
            cumulative: self.cumulative,
            seen,
            window_start,
            bits,
        };
        self.acks_this_round += 1;
        let all_told = self.lap.left == 0;
        if !all_told && self.acks_this_round < MAX_ACKS_A_ROUND {
            return NextAck::More(ack);
        }
        self.acks_this_round = 0;
        if all_told {
            NextAck::Last(ack)
        } else {
            NextAck::Unfinished(ack)
        }
    }
}

impl AckRound {
    /// The words that the next ACK reports, at most `room`.
    fn advance(&mut self, window: &Range<u32>, room: u32) -> Range<u32> {
        let first = if window.contains(&self.next_word) {
            self.next_word
        } else {
            window.start
        };
        let last = first.saturating_add(room).min(window.end);
        // Wrap around to the cumulative point. The window grows at its end meanwhile, and repairs
        // near its start must not wait until it stops growing.
        self.next_word = if last == window.end { 0 } else { last };
        // As the window's start advances, there is less to report than was expected.
        self.left = self.left.min(window.end - window.start);
        self.left = self.left.saturating_sub(last - first);
        first..last
    }
}
