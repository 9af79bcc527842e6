//! The queue pairs to a peer that have something to send, and the queue in which they wait for their
//! turn.

use std::collections::VecDeque;

/// The state of a queue pair among the queue pairs to its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlaceInQueue {
    /// Whether the queue pair has something to send.
    wants: bool,
    /// Whether the queue pair waits in the queue for the pace or the window.
    is_waiting: bool,
    /// What the queue pair has left to send, in bytes on the wire.
    pub(super) backlog_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TurnEnd {
    /// Whether the queue pair has more to send.
    pub(crate) wants: bool,
    /// Whether it waits for the pace, the window or credit.
    pub(crate) waits: bool,
    /// What is known to be left to send, in bytes on the wire. 0 unless the peer's state
    /// [needs it](super::PeerState::needs_backlog).
    pub(crate) backlog_bytes: u64,
    /// Whether the next packet has left before. Then the scheme may have more repeats than are known
    /// here.
    pub(crate) repeats: bool,
}

/// Who has something to send, and who sends next.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    /// Number of queue pairs that have something to send.
    wanting: usize,
    /// Queue pairs that wait for the pace or the window, by index. The first is the next to send.
    waiting: VecDeque<u32>,
}

impl SendQueue {
    pub(super) fn is_wanting(&self) -> bool {
        self.wanting > 0
    }

    /// Returns the queue pair that sends next, if one waits.
    pub(super) fn first(&self) -> Option<u32> {
        self.waiting.front().copied()
    }

    /// `has_sent`: whether anything left in the turn.
    pub(super) fn end_turn(
        &mut self,
        index: u32,
        place: &mut PlaceInQueue,
        end: &TurnEnd,
        has_sent: bool,
    ) {
        match (place.wants, end.wants) {
            (false, true) => self.wanting += 1,
            (true, false) => self.wanting -= 1,
            _ => {}
        }
        place.wants = end.wants;
        // A queue pair that could not send anything stays first.
        if self.first() == Some(index) && (has_sent || !end.waits) {
            self.waiting.pop_front();
            place.is_waiting = false;
        }
        if end.waits && !std::mem::replace(&mut place.is_waiting, true) {
            self.waiting.push_back(index);
        }
    }

    /// Removes a queue pair that has ended.
    pub(super) fn leave(&mut self, index: u32, place: PlaceInQueue) {
        self.wanting -= usize::from(place.wants);
        self.waiting.retain(|&other| other != index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: TurnEnd = TurnEnd {
        wants: true,
        waits: true,
        backlog_bytes: 0,
        repeats: false,
    };

    #[test]
    fn who_has_sent_goes_to_the_end_and_who_could_not_stays_first() {
        let mut line = SendQueue::default();
        let mut places = [PlaceInQueue::default(); 3];
        for (index, place) in (0..).zip(&mut places) {
            line.end_turn(index, place, &HELD, false);
        }
        line.end_turn(0, &mut places[0], &HELD, false);
        assert_eq!(line.first(), Some(0));
        line.end_turn(0, &mut places[0], &HELD, true);
        assert_eq!(line.first(), Some(1));
        line.end_turn(1, &mut places[1], &TurnEnd::default(), true);
        assert_eq!(line.waiting, [2, 0]);
    }

    #[test]
    fn nothing_is_wanted_after_all_have_left_or_sent_all() {
        let mut line = SendQueue::default();
        let mut places = [PlaceInQueue::default(); 2];
        for (index, place) in (0..).zip(&mut places) {
            line.end_turn(index, place, &HELD, false);
        }
        line.leave(0, places[0]);
        assert!(line.is_wanting());
        assert_eq!(line.first(), Some(1));
        line.end_turn(1, &mut places[1], &TurnEnd::default(), true);
        assert!(!line.is_wanting());
        assert_eq!(line.first(), None);
    }
}
