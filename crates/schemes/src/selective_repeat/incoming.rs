//! One message at the receiver of selective repeat: its cumulative point and its ACKs.

use alloc::vec::Vec;
use farwrite_wire::control::Ack;

use crate::arrived::cumulative;
use crate::scheme::Arrivals;

/// ACKs that may describe one message in one round (P5.1.4).
const MAX_ACKS_A_ROUND: u32 = 16;

#[derive(Debug)]
pub(super) struct Incoming {
    number: u64,
    chunks: u32,
    /// Chunks `0..cumulative` have arrived.
    pub(super) cumulative: u32,
    /// Word of the bitmap with which the next ACK begins; below the cumulative point: there.
    next_word: u32,
    acks_this_round: u32,
}

/// What [`Incoming::ack`] made.
pub(super) struct NextAck {
    /// `None` if nothing has arrived.
    pub(super) ack: Option<Ack>,
    /// Whether the message needs no more ACKs in this round.
    pub(super) ends_round: bool,
}

impl Incoming {
    pub(super) fn new(number: u64, chunks: u32) -> Self {
        Self {
            number,
            chunks,
            cumulative: 0,
            next_word: 0,
            acks_this_round: 0,
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.cumulative == self.chunks
    }

    pub(super) fn advance(&mut self, arrivals: &dyn Arrivals) {
        self.cumulative = cumulative(arrivals, self.number, self.cumulative, self.chunks);
    }

    /// The next ACK of a round. The selective part takes up where the last one ended, and goes
    /// around in `cumulative..seen`; a round ends with the window's end, or when it is long enough.
    pub(super) fn ack(&mut self, arrivals: &dyn Arrivals, max_bytes: usize) -> NextAck {
        self.advance(arrivals);
        let seen = arrivals.seen(self.number).min(self.chunks);
        if seen == 0 && self.cumulative == 0 {
            return self.end_round(None);
        }
        let seen = seen.max(self.cumulative);
        let mut ack = Ack {
            message: self.number,
            cumulative: self.cumulative,
            seen,
            window_start: self.cumulative / 8 * 8,
            bits: Vec::new(),
        };
        let window_words = self.cumulative / 64..seen.div_ceil(64);
        if self.cumulative == seen {
            return self.end_round(Some(ack));
        }
        let first = if window_words.contains(&self.next_word) {
            self.next_word
        } else {
            window_words.start
        };
        let room = u32::try_from(max_bytes / 8).unwrap_or(u32::MAX).max(1);
        let last = first.saturating_add(room).min(window_words.end);
        ack.window_start = first * 64;
        for word in first..last {
            let bits = arrivals.word(self.number, word);
            ack.bits.extend_from_slice(&bits.to_le_bytes());
        }
        let described = (seen - ack.window_start).div_ceil(8) as usize;
        ack.bits.truncate(described);
        // Around again from the cumulative point: the window grows at its end meanwhile, and what was
        // repaired near its start must not wait for that to stop.
        let around = last == window_words.end;
        self.next_word = if around { 0 } else { last };
        self.acks_this_round += 1;
        if around || self.acks_this_round == MAX_ACKS_A_ROUND {
            return self.end_round(Some(ack));
        }
        NextAck {
            ack: Some(ack),
            ends_round: false,
        }
    }

    fn end_round(&mut self, ack: Option<Ack>) -> NextAck {
        self.acks_this_round = 0;
        NextAck {
            ack,
            ends_round: true,
        }
    }
}
