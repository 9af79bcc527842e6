//! One message at the receiver of selective repeat: its cumulative point and its ACKs.

use core::ops::Range;

use alloc::vec::Vec;
use farwrite_wire::control::Ack;

use crate::arrived::cumulative;
use crate::scheme::Arrivals;

/// ACKs that may describe one message in one round (P5.1.4).
const MAX_ACKS_A_ROUND: u32 = 16;

#[derive(Debug)]
pub(crate) struct Incoming {
    number: u64,
    chunks: u32,
    /// Chunks `0..cumulative` have arrived.
    pub(crate) cumulative: u32,
    lap: Lap,
    acks_this_round: u32,
}

/// How far the selective parts of successive ACKs have gone around in the window.
#[derive(Debug)]
struct Lap {
    /// Word of the bitmap with which the next begins; below the cumulative point: there.
    next_word: u32,
    /// Words to tell before all is told that had arrived when the round began.
    left: u32,
    /// Something has arrived since.
    stale: bool,
}

/// What [`Incoming::ack`] made.
pub(crate) enum NextAck {
    /// Nothing has arrived, there is nothing to tell.
    None,
    /// There is more to tell in this round.
    More(Ack),
    /// The round is over; what it left out is for the next one.
    Unfinished(Ack),
    /// The round is over, and all is told.
    Last(Ack),
}

impl Incoming {
    pub(crate) fn new(number: u64, chunks: u32) -> Self {
        Self {
            number,
            chunks,
            cumulative: 0,
            lap: Lap {
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

    /// Packets of it have come.
    pub(crate) fn arrived(&mut self, arrivals: &dyn Arrivals) {
        self.lap.stale = true;
        self.advance(arrivals);
    }

    fn advance(&mut self, arrivals: &dyn Arrivals) {
        self.cumulative = cumulative(arrivals, self.number, self.cumulative, self.chunks);
    }

    /// The next ACK of a round. Its selective part takes up where the last one ended, and goes
    /// around in `cumulative..seen`; a round is over when it has told all, or is long enough.
    pub(crate) fn ack(&mut self, arrivals: &dyn Arrivals, max_bytes: usize) -> NextAck {
        self.advance(arrivals);
        let seen = arrivals.seen(self.number).min(self.chunks);
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
            bits.extend_from_slice(&arrivals.word(self.number, word).to_le_bytes());
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

impl Lap {
    /// The words that the next ACK tells, at most `room`.
    fn advance(&mut self, window: &Range<u32>, room: u32) -> Range<u32> {
        let first = if window.contains(&self.next_word) {
            self.next_word
        } else {
            window.start
        };
        let last = first.saturating_add(room).min(window.end);
        // Around again from the cumulative point: the window grows at its end meanwhile, and what
        // was repaired near its start must not wait for that to stop.
        self.next_word = if last == window.end { 0 } else { last };
        // As the window's start moves up, there is less to tell than was foreseen.
        self.left = self.left.min(window.end - window.start);
        self.left = self.left.saturating_sub(last - first);
        first..last
    }
}
