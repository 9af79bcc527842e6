//! The schemes that an endpoint knows, and the scheme halves that a queue pair runs.

use farwrite_schemes::scheme::{
    Arrivals, MessageId, PeerView, Receiver, Scheme, Sender, SenderCounters,
};
use farwrite_sdr::Received;
use farwrite_wire::control::SchemeTag;

/// Converts a tag that a peer offered into the scheme that it names. Returns `None` for an unknown
/// tag.
pub type SchemeResolver = fn(SchemeTag) -> Option<Box<dyn Scheme>>;

/// Maximum number of different schemes, or parameters, that a peer may use on one queue pair, or
/// request for reads. The tags come from the peer, so their number must be bounded.
const MAX_OF_PEER: usize = 16;

fn own_scheme(tag: SchemeTag) -> Option<Box<dyn Scheme>> {
    Some(farwrite_schemes::registry::from_tag(tag)? as Box<dyn Scheme>)
}

/// The schemes that an endpoint knows.
pub(crate) struct Registry(Vec<SchemeResolver>);

impl Registry {
    pub(crate) fn new() -> Self {
        Self(vec![own_scheme])
    }

    pub(crate) fn add(&mut self, resolver: SchemeResolver) {
        self.0.push(resolver);
    }

    pub(crate) fn find(&self, tag: SchemeTag) -> Option<Box<dyn Scheme>> {
        self.0.iter().find_map(|resolver| resolver(tag))
    }

    /// Returns whether messages of the scheme may end as partial, regardless of the options of
    /// their receives.
    pub(crate) fn is_bounded(&self, tag: SchemeTag) -> bool {
        self.find(tag).is_some_and(|scheme| scheme.is_bounded())
    }
}

/// The scheme halves of one queue pair: for each tag, at most one sender and one receiver.
#[derive(Default)]
pub(crate) struct SchemeHalves {
    senders: Vec<(SchemeTag, Box<dyn Sender + Send>)>,
    receivers: Vec<(SchemeTag, Box<dyn Receiver + Send>)>,
    /// The sender that was pulled last. The next pull starts after it.
    turn: usize,
    /// Counters of halves that no longer exist.
    past: SenderCounters,
}

impl SchemeHalves {
    /// Creates the half at the first use. Returns `None` for an unknown scheme.
    pub(crate) fn sender(
        &mut self,
        tag: SchemeTag,
        known: &Registry,
    ) -> Option<&mut (dyn Sender + Send)> {
        let index = match self.senders.iter().position(|(t, _)| *t == tag) {
            Some(index) => index,
            None => {
                self.senders.push((tag, known.find(tag)?.sender()));
                self.senders.len() - 1
            }
        };
        Some(&mut *self.senders[index].1)
    }

    /// Returns whether the peer may have this end send with a scheme.
    pub(crate) fn has_room_for_sender(&self, tag: SchemeTag) -> bool {
        let exists = self.senders.iter().any(|(t, _)| *t == tag);
        exists || self.senders.len() < MAX_OF_PEER
    }

    pub(crate) fn existing_sender(&mut self, tag: SchemeTag) -> Option<&mut (dyn Sender + Send)> {
        self.senders
            .iter_mut()
            .find(|(t, _)| *t == tag)
            .map(|(_, sender)| &mut **sender as _)
    }

    /// Returns the receiving half for a tag, and creates it at the first use. Returns `None` for an
    /// unknown scheme, or when the peer already uses too many.
    pub(crate) fn receiver(
        &mut self,
        tag: SchemeTag,
        known: &Registry,
    ) -> Option<&mut (dyn Receiver + Send)> {
        let index = match self.receivers.iter().position(|(t, _)| *t == tag) {
            Some(index) => index,
            None if self.receivers.len() >= MAX_OF_PEER => return None,
            None => {
                self.receivers.push((tag, known.find(tag)?.receiver()));
                self.receivers.len() - 1
            }
        };
        Some(&mut *self.receivers[index].1)
    }

    pub(crate) fn existing_receiver(
        &mut self,
        tag: SchemeTag,
    ) -> Option<&mut (dyn Receiver + Send)> {
        self.receivers
            .iter_mut()
            .find(|(t, _)| *t == tag)
            .map(|(_, receiver)| &mut **receiver as _)
    }

    pub(crate) fn senders(&mut self) -> impl Iterator<Item = &mut (dyn Sender + Send)> {
        self.senders
            .iter_mut()
            .map(|(_, sender)| &mut **sender as _)
    }

    pub(crate) fn receivers(&mut self) -> impl Iterator<Item = &mut (dyn Receiver + Send)> {
        self.receivers
            .iter_mut()
            .map(|(_, receiver)| &mut **receiver as _)
    }

    /// Returns the next sender in turn, so that no sender starves another. The first sender comes
    /// after the last.
    pub(crate) fn next_sender(&mut self) -> Option<&mut (dyn Sender + Send)> {
        self.turn = (self.turn + 1) % self.senders.len().max(1);
        self.senders
            .get_mut(self.turn)
            .map(|(_, sender)| &mut **sender as _)
    }

    /// Returns the sender at an index in `0..sender_count`.
    pub(crate) fn sender_at(&mut self, index: usize) -> &mut (dyn Sender + Send) {
        &mut *self.senders[index].1
    }

    /// Returns the receiver at an index in `0..receiver_count`.
    pub(crate) fn receiver_at(&mut self, index: usize) -> &mut (dyn Receiver + Send) {
        &mut *self.receivers[index].1
    }

    pub(crate) fn receiver_tag(&self, index: usize) -> SchemeTag {
        self.receivers[index].0
    }

    pub(crate) fn receiver_count(&self) -> usize {
        self.receivers.len()
    }

    pub(crate) fn sender_count(&self) -> usize {
        self.senders.len()
    }

    /// Handles the timeouts that are due. Sending halves see `sending`, and receiving halves `receiving`.
    pub(crate) fn handle_timeouts(
        &mut self,
        sending: &PeerView,
        receiving: &PeerView,
        received: &Received,
    ) {
        let due = |timeout: Option<u64>| timeout.is_some_and(|at| at <= receiving.now_ns);
        for sender in self.senders().filter(|sender| due(sender.next_timeout())) {
            sender.handle_timeout(sending);
        }
        let arrivals = TableArrivals(received);
        for receiver in self
            .receivers()
            .filter(|receiver| due(receiver.next_timeout()))
        {
            receiver.handle_timeout(receiving, &arrivals);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let senders = self
            .senders
            .iter()
            .filter_map(|(_, sender)| sender.next_timeout());
        let receivers = self
            .receivers
            .iter()
            .filter_map(|(_, receiver)| receiver.next_timeout());
        senders.chain(receivers).min()
    }

    /// Ends all halves. None of them has a message. Each half is created again at its next use.
    pub(crate) fn rest(&mut self) {
        *self = Self {
            past: self.sender_counters(),
            ..Self::default()
        };
    }

    pub(crate) fn sender_counters(&self) -> SenderCounters {
        self.senders.iter().fold(self.past, |sum, (_, sender)| {
            let one = sender.counters();
            SenderCounters {
                sent_chunks: sum.sent_chunks + one.sent_chunks,
                retransmitted_chunks: sum.retransmitted_chunks + one.retransmitted_chunks,
                timeouts: sum.timeouts + one.timeouts,
            }
        })
    }
}

/// The arrivals, in the form that schemes read.
pub(crate) struct TableArrivals<'a>(pub(crate) &'a Received);

impl Arrivals for TableArrivals<'_> {
    fn word(&self, message: MessageId, word: u32) -> u64 {
        self.0.word(message, word)
    }

    fn count(&self, message: MessageId) -> u32 {
        self.0.count(message)
    }

    fn seen(&self, message: MessageId) -> u32 {
        self.0.seen(message)
    }

    fn immediate_is_whole(&self, message: MessageId) -> bool {
        self.0.immediate_is_whole(message)
    }
}
