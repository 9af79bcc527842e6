//! The order in which queue pairs send: deficit round robin (Shreedhar and Varghese, SIGCOMM 1995).
//!
//! Queue pairs that may have something to send wait in a queue. Each may send the same number of
//! bytes in its turn. Then it moves to the end of the queue, or leaves it. If the fabric has
//! no room for a queue pair, the queue pair keeps its place and the rest of its turn. So queue
//! pairs that share a full fabric send equal amounts, with a difference of at most one turn.

use std::collections::VecDeque;

use crate::pair::{Halt, Turn};

/// Number of bytes sent and encoded after which a poll ends. The limit keeps the wait of arrivals
/// short.
const POLL_BYTES: u64 = 1 << 20;
/// Number of turns without progress after which a poll ends. In such a turn the fabric takes
/// nothing, but the turn costs a system call.
const POLL_REFUSALS: usize = 32;

/// The queue of queue pairs that may have something to send, by index.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    line: VecDeque<u32>,
    /// Whether each index is in the queue.
    is_in_line: Vec<bool>,
    /// Queue pairs of this round that keep their places, and whether the fabric took some of their
    /// packets.
    held: Vec<(u32, bool)>,
    round: Round,
}

/// One pass over the queue.
#[derive(Debug, Default)]
struct Round {
    /// Number of queue pairs that have not had their turn.
    left: usize,
    turns: usize,
    /// Number of turns in which the fabric had no room and took nothing.
    refusals: usize,
    work_bytes: u64,
    /// Whether a queue pair has more to send or to encode.
    more: bool,
}

/// Why queue pairs are still in the queue after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unserved {
    /// No queue pair is in the queue.
    Empty,
    /// The fabric has no room for the queue pairs in the queue.
    Full,
    /// The round reached its limit.
    More,
}

impl Turns {
    /// Puts a queue pair at the end of the queue, unless it is already in it.
    pub(crate) fn join(&mut self, index: u32) {
        let place = index as usize;
        if place >= self.is_in_line.len() {
            self.is_in_line.resize(place + 1, false);
        }
        if !std::mem::replace(&mut self.is_in_line[place], true) {
            self.line.push_back(index);
        }
    }

    /// Puts a queue pair at the end of the queue during a round. The queue pair gets a turn in this
    /// round.
    pub(crate) fn admit(&mut self, index: u32) {
        let before = self.line.len();
        self.join(index);
        self.round.left += self.line.len() - before;
    }

    /// Removes a queue pair that has ended.
    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(is_in_line) = self.is_in_line.get_mut(index as usize)
            && std::mem::take(is_in_line)
        {
            self.line.retain(|&other| other != index);
            self.held.retain(|&(other, _)| other != index);
        }
    }

    /// Begins a round. In a round, every queue pair in the queue has at most one turn.
    pub(crate) fn begin(&mut self) {
        self.round = Round {
            left: self.line.len(),
            ..Round::default()
        };
    }

    /// Returns the next queue pair to have its turn in this round. Report the result of the turn
    /// with [`Turns::note`].
    pub(crate) fn next(&mut self) -> Option<u32> {
        if self.round.left == 0 || self.round.refusals >= POLL_REFUSALS {
            return None;
        }
        if self.round.work_bytes >= POLL_BYTES {
            self.round.more = true;
            return None;
        }
        self.round.left -= 1;
        self.line.pop_front()
    }

    pub(crate) fn note(&mut self, index: u32, turn: &Turn, encoded_bytes: u64) {
        // If the fabric takes nothing of a queue pair, that queue pair does not stay first. Its own
        // queue in the fabric may be full for a long time, and the queue pairs behind it must have
        // turns meanwhile.
        let is_stuck = self.round.turns == 0 && turn.sent_bytes == 0;
        let has_more = encoded_bytes > 0 || turn.halt == Halt::TurnOver;
        match turn.halt {
            Halt::Full if !is_stuck => self.held.push((index, turn.sent_bytes > 0)),
            Halt::Full => self.line.push_back(index),
            _ if has_more => self.line.push_back(index),
            _ => self.is_in_line[index as usize] = false,
        }
        self.round.more |= has_more;
        let is_refused = turn.halt == Halt::Full && turn.sent_bytes == 0;
        self.round.refusals += usize::from(is_refused);
        self.round.turns += 1;
        self.round.work_bytes += turn.sent_bytes + encoded_bytes;
    }

    pub(crate) fn end(&mut self) -> Unserved {
        // Behind the refused queue pairs, there may be others whose own queues in the fabric have
        // room. Those come first in the next round.
        let is_cut = self.round.refusals >= POLL_REFUSALS;
        for (index, _) in self.held.iter().filter(|(_, sent)| is_cut && !sent) {
            self.line.push_back(*index);
        }
        for (index, _) in self
            .held
            .drain(..)
            .rev()
            .filter(|(_, sent)| !is_cut || *sent)
        {
            self.line.push_front(index);
        }
        match (self.round.more, self.line.is_empty()) {
            (true, _) => Unserved::More,
            (false, false) => Unserved::Full,
            (false, true) => Unserved::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a round in which each queue pair does what `turn` returns. Returns the queue pairs that
    /// had a turn, and why some queue pairs are still in the queue.
    fn round(turns: &mut Turns, mut turn: impl FnMut(u32) -> (u64, Halt)) -> (Vec<u32>, Unserved) {
        let mut order = Vec::new();
        turns.begin();
        while let Some(index) = turns.next() {
            let (sent_bytes, halt) = turn(index);
            turns.note(index, &Turn { sent_bytes, halt }, 0);
            order.push(index);
        }
        (order, turns.end())
    }

    fn line(indices: &[u32]) -> Turns {
        let mut turns = Turns::default();
        indices.iter().for_each(|&index| turns.join(index));
        turns
    }

    #[test]
    fn who_has_nothing_to_send_leaves_the_line() {
        let mut turns = line(&[4, 2, 2, 9]);
        let idle = Halt::Idle { posted: false };
        assert_eq!(
            round(&mut turns, |_| (0, idle)),
            (vec![4, 2, 9], Unserved::Empty)
        );
        assert_eq!(round(&mut turns, |_| (0, idle)), (vec![], Unserved::Empty));
        turns.join(2);
        assert_eq!(
            round(&mut turns, |_| (0, Halt::Held)),
            (vec![2], Unserved::Empty)
        );
    }

    #[test]
    fn who_has_more_to_send_goes_to_the_end() {
        let mut turns = line(&[1, 2, 3]);
        let over = |index| match index {
            2 => (10, Halt::Idle { posted: true }),
            _ => (POLL_BYTES / 2, Halt::TurnOver),
        };
        assert_eq!(round(&mut turns, over), (vec![1, 2, 3], Unserved::More));
        assert_eq!(round(&mut turns, over), (vec![1, 3], Unserved::More));
    }

    #[test]
    fn a_round_ends_after_enough_work_and_goes_on_with_the_next() {
        let mut turns = line(&[1, 2, 3]);
        let over = |_| (POLL_BYTES, Halt::TurnOver);
        assert_eq!(round(&mut turns, over), (vec![1], Unserved::More));
        assert_eq!(round(&mut turns, over), (vec![2], Unserved::More));
        assert_eq!(round(&mut turns, over), (vec![3], Unserved::More));
        assert_eq!(round(&mut turns, over), (vec![1], Unserved::More));
    }

    #[test]
    fn where_the_fabric_is_full_places_are_kept() {
        let mut turns = line(&[1, 2, 3]);
        let full = |index| (u64::from(index == 1), Halt::Full);
        assert_eq!(round(&mut turns, full), (vec![1, 2, 3], Unserved::Full));
        // The fabric took nothing of the first queue pair, so that one moves to the end. The others
        // keep their places.
        assert_eq!(round(&mut turns, |_| (0, Halt::Full)).0, [1, 2, 3]);
        assert_eq!(round(&mut turns, full).0, [2, 3, 1]);
    }

    #[test]
    fn a_round_ends_after_refusals_and_goes_on_with_the_others() {
        let all: Vec<u32> = (0..100).collect();
        let mut turns = line(&all);
        let refused = |_| (0, Halt::Full);
        assert_eq!(
            round(&mut turns, refused),
            (all[..32].to_vec(), Unserved::Full)
        );
        assert_eq!(round(&mut turns, refused).0, all[32..64]);
        assert_eq!(round(&mut turns, refused).0, all[64..96]);
        let mut next = all[96..].to_vec();
        next.extend(&all[..28]);
        let mut had_turns = round(&mut turns, refused).0;
        had_turns.sort_unstable();
        next.sort_unstable();
        assert_eq!(had_turns, next);
    }

    #[test]
    fn a_removed_queue_pair_has_no_turn() {
        let mut turns = line(&[1, 2, 3]);
        turns.remove(2);
        turns.remove(8);
        assert_eq!(round(&mut turns, |_| (0, Halt::Held)).0, [1, 3]);
    }
}
