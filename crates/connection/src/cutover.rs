//! What goes on over another queue pair of its connection when the path comes to carry only smaller packets
//! (P12.9).

use std::collections::BTreeSet;
use std::sync::Arc;

use farwrite::{Endpoint, QpOptions, QueuePair, UdpFabric};
use serde::{Deserialize, Serialize};

/// Messages of one direction of a queue pair: all below a number, and some later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    below: u64,
    /// Bit 0 of the first byte is the message `below`.
    later: Vec<u8>,
}

impl Numbers {
    /// The messages that have ended, where `next` were posted and `open` have not ended.
    #[must_use]
    pub fn ended(next: u64, open: &BTreeSet<u64>) -> Self {
        let below = open.first().copied().unwrap_or(next);
        let mut later = Vec::new();
        for number in (below..next).filter(|number| !open.contains(number)) {
            let place = usize::try_from(number - below).unwrap_or(usize::MAX);
            later.resize(place / 8 + 1, 0);
            later[place / 8] |= 1 << (place % 8);
        }
        Self { below, later }
    }

    /// Whether a message is among them.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        let Some(place) = number.checked_sub(self.below) else {
            return true;
        };
        let byte = usize::try_from(place / 8).ok();
        let byte = byte.and_then(|byte| self.later.get(byte));
        byte.is_some_and(|byte| byte & (1 << (place % 8)) != 0)
    }
}

/// What has become of the messages of a queue pair that has ended, as one end knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedMessages {
    /// Messages that this end has received, or has ended without.
    pub received: Numbers,
    /// Those of `received` that did not arrive whole, as far as the peer may not know it.
    pub failed: Vec<u64>,
    /// Messages that this end has sent, and that have ended.
    pub sent: Numbers,
}

/// What a queue pair of a connection carries and can go on over another one. The thread of the endpoint calls it,
/// with a lock of the connection: it must not call the connection, nor hold a [`Connection`](crate::Connection), whose
/// end needs that lock.
pub trait GoesOn: Send {
    /// Replaces the queue pair by one with these options ([`Endpoint::replace_qp`]), and posts nothing on it yet.
    /// Returns the new one, and what has become of the messages of the old one.
    ///
    /// # Errors
    /// Those of [`Endpoint::replace_qp`].
    fn cut(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        options: &QpOptions,
    ) -> Result<(QueuePair, EndedMessages), farwrite::Error>;

    /// Goes on over the new queue pair, which is connected: messages that have ended at neither end are posted again,
    /// in their order. `theirs` is what the peer knows. Returns whether that has succeeded; if not, both ends give up.
    #[must_use]
    fn go_on(&mut self, endpoint: &mut Endpoint<UdpFabric>, theirs: &EndedMessages) -> bool;

    /// The queue pair is broken, and there is no other one.
    fn give_up(&mut self, endpoint: &mut Endpoint<UdpFabric>, why: Arc<farwrite::Error>);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn exactly_the_ended_messages_are_named(next in 0_u64..200, open in prop::collection::btree_set(0_u64..200, 0..20)) {
            let open: BTreeSet<u64> = open.into_iter().filter(|number| *number < next).collect();
            let ended = Numbers::ended(next, &open);
            for number in 0..300 {
                prop_assert_eq!(ended.contains(number), number < next && !open.contains(&number));
            }
        }

        #[test]
        fn any_numbers_of_a_peer_can_be_asked(below: u64, later: Vec<u8>, number: u64) {
            let numbers = Numbers { below, later };
            prop_assert!(numbers.contains(number) || number >= below);
        }
    }
}
