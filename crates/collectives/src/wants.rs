//! The receives of another rank that wait for sends from this rank.
//!
//! A receive from any rank waits at all other ranks. A rank that has a send for it offers the send, and keeps it
//! until the receive is given to this rank or to another one. So later sends with its tag wait too, and keep their
//! order.

use std::collections::VecDeque;

use crate::control::WaitingReceive;

/// The maximum number of receives of one rank whose sends have not been started here.
pub(crate) const MOST_WANTS: usize = 1 << 16;

/// The receives of one rank, in the order of posting.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    waiting: VecDeque<Want>,
    served: u64,
}

#[derive(Debug)]
struct Want {
    receive: WaitingReceive,
    from: From,
}

/// Whose send a receive takes.
#[derive(Debug, PartialEq, Eq)]
enum From {
    ThisRank,
    AnyRank,
    /// As `AnyRank`, and a send of this rank is offered to it.
    Offered,
}

/// What there is for a send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Match {
    Nothing,
    /// The send can begin.
    Receive(WaitingReceive),
    /// A receive from any rank, to which this send must be offered.
    Offer(u64),
}

impl Wants {
    /// Adds a receive from this rank. It may have waited before, as a receive from any rank. Returns `false` if there
    /// is no room.
    pub(crate) fn add(&mut self, receive: WaitingReceive) -> bool {
        match self.position_of_any(receive.number) {
            Some(place) => self.waiting[place].from = From::ThisRank,
            None => return self.push(receive, From::ThisRank),
        }
        true
    }

    /// Adds a receive from any rank. Returns `false` if there is no room.
    pub(crate) fn add_any(&mut self, receive: WaitingReceive) -> bool {
        self.push(receive, From::AnyRank)
    }

    fn push(&mut self, receive: WaitingReceive, from: From) -> bool {
        let has_room = self.waiting.len() < MOST_WANTS;
        if has_room {
            self.waiting.push_back(Want { receive, from });
        }
        has_room
    }

    /// Removes a receive from any rank, which gets its data from another rank.
    pub(crate) fn remove_any(&mut self, number: u64) {
        if let Some(place) = self.position_of_any(number) {
            self.waiting.remove(place);
        }
    }

    fn position_of_any(&self, number: u64) -> Option<usize> {
        let is_it = |want: &Want| want.receive.number == number && want.from != From::ThisRank;
        self.waiting.iter().position(is_it)
    }

    /// Finds the first receive with this tag, and removes it if it takes the send of this rank.
    pub(crate) fn take(&mut self, tag: u32) -> Match {
        let place = self.waiting.iter().position(|want| want.receive.tag == tag);
        let Some((place, want)) =
            place.and_then(|place| Some((place, self.waiting.get_mut(place)?)))
        else {
            return Match::Nothing;
        };
        let receive = want.receive;
        match want.from {
            From::Offered => Match::Nothing,
            From::AnyRank => {
                want.from = From::Offered;
                Match::Offer(receive.number)
            }
            From::ThisRank => {
                self.waiting.remove(place);
                self.served += u64::from(receive.bytes > 0);
                Match::Receive(receive)
            }
        }
    }

    /// The number of receives that were removed for a send of this rank, without those of 0 bytes.
    pub(crate) fn served(&self) -> u64 {
        self.served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(number: u64, tag: u32) -> WaitingReceive {
        let bytes = 8;
        WaitingReceive { number, tag, bytes }
    }

    #[test]
    fn a_send_that_is_offered_keeps_its_place() {
        let mut wants = Wants::default();
        assert!(wants.add_any(receive(0, 7)));
        assert!(wants.add(receive(1, 7)) && wants.add(receive(2, 8)));
        assert_eq!(wants.take(7), Match::Offer(0));
        // The next send with this tag waits: the first one may get the second receive.
        assert_eq!(wants.take(7), Match::Nothing);
        assert_eq!(wants.take(8), Match::Receive(receive(2, 8)));
        assert!(wants.add(receive(0, 7)));
        assert_eq!(wants.take(7), Match::Receive(receive(0, 7)));
        assert_eq!(wants.take(7), Match::Receive(receive(1, 7)));
        assert_eq!(wants.take(7), Match::Nothing);
        assert_eq!(wants.served(), 3);
    }

    #[test]
    fn a_receive_that_another_rank_serves_frees_the_offered_send() {
        let mut wants = Wants::default();
        assert!(wants.add_any(receive(0, 7)) && wants.add(receive(1, 7)));
        assert_eq!(wants.take(7), Match::Offer(0));
        wants.remove_any(0);
        // Only a receive from any rank can go elsewhere.
        wants.remove_any(1);
        assert_eq!(wants.take(7), Match::Receive(receive(1, 7)));
    }

    #[test]
    fn receives_without_a_send_have_a_bound() {
        let mut wants = Wants::default();
        for number in 0..MOST_WANTS as u64 {
            assert!(wants.add_any(receive(number, 0)));
        }
        assert!(
            !wants.add_any(receive(MOST_WANTS as u64, 0))
                && !wants.add(receive(MOST_WANTS as u64, 0))
        );
        assert!(wants.add(receive(5, 0)), "it waits already");
    }
}
