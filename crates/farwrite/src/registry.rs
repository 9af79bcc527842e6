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

/// The half of a scheme at the sender.
pub(crate) type SendingHalf = dyn Sender + Send;
/// The half of a scheme at the receiver.
pub(crate) type ReceivingHalf = dyn Receiver + Send;

/// The halves of schemes at one end of a queue pair, at most one for each tag.
pub(crate) struct Halves<H: ?Sized>(Vec<(SchemeTag, Box<H>)>);

impl<H: ?Sized> Default for Halves<H> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<H: ?Sized> Halves<H> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the half at an index below [`Halves::len`].
    pub(crate) fn at(&mut self, index: usize) -> &mut H {
        &mut self.0[index].1
    }

    /// Returns the tag of the half at an index below [`Halves::len`].
    pub(crate) fn tag(&self, index: usize) -> SchemeTag {
        self.0[index].0
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut H> {
        self.0.iter_mut().map(|(_, half)| &mut **half)
    }

    fn place(&self, tag: SchemeTag) -> Option<usize> {
        self.0.iter().position(|(of, _)| *of == tag)
    }

    /// Returns the half of a scheme, if it exists.
    pub(crate) fn get(&mut self, tag: SchemeTag) -> Option<&mut H> {
        self.place(tag).map(|place| self.at(place))
    }

    /// Returns whether the peer may have this end use a scheme.
    pub(crate) fn have_room_for(&self, tag: SchemeTag) -> bool {
        self.place(tag).is_some() || self.len() < MAX_OF_PEER
    }

    fn get_or_make(
        &mut self,
        tag: SchemeTag,
        make: impl FnOnce() -> Option<Box<H>>,
    ) -> Option<&mut H> {
        let place = match self.place(tag) {
            Some(place) => place,
            None => {
                self.0.push((tag, make()?));
                self.len() - 1
            }
        };
        Some(self.at(place))
    }
}

/// The scheme halves of one queue pair.
#[derive(Default)]
pub(crate) struct SchemeHalves {
    pub(crate) senders: Halves<SendingHalf>,
    pub(crate) receivers: Halves<ReceivingHalf>,
    /// The sender that was pulled last. The next pull starts after it.
    turn: usize,
    /// Counters of halves that no longer exist.
    past: SenderCounters,
}

impl SchemeHalves {
    /// Returns the sending half for a tag, and creates it at the first use. Returns `None` for an unknown scheme.
    pub(crate) fn sender(&mut self, tag: SchemeTag, known: &Registry) -> Option<&mut SendingHalf> {
        self.senders
            .get_or_make(tag, || Some(known.find(tag)?.sender()))
    }

    /// Returns the receiving half for a tag, and creates it at the first use. Returns `None` for an
    /// unknown scheme, or when the peer already uses too many.
    pub(crate) fn receiver(
        &mut self,
        tag: SchemeTag,
        known: &Registry,
    ) -> Option<&mut ReceivingHalf> {
        if !self.receivers.have_room_for(tag) {
            return None;
        }
        self.receivers
            .get_or_make(tag, || Some(known.find(tag)?.receiver()))
    }

    /// Returns the next sender in turn, so that no sender starves another. The first sender comes
    /// after the last.
    pub(crate) fn next_sender(&mut self) -> Option<&mut SendingHalf> {
        self.turn = (self.turn + 1) % self.senders.len().max(1);
        self.senders.all().nth(self.turn)
    }

    /// Handles the timeouts that are due. Sending halves see `sending`, and receiving halves `receiving`.
    pub(crate) fn handle_timeouts(
        &mut self,
        sending: &PeerView,
        receiving: &PeerView,
        received: &Received,
    ) {
        let due = |timeout: Option<u64>| timeout.is_some_and(|at| at <= receiving.now_ns);
        let senders = self.senders.all();
        for sender in senders.filter(|sender| due(sender.next_timeout())) {
            sender.handle_timeout(sending);
        }
        let arrivals = TableArrivals(received);
        let receivers = self.receivers.all();
        for receiver in receivers.filter(|receiver| due(receiver.next_timeout())) {
            receiver.handle_timeout(receiving, &arrivals);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let senders = self.senders.0.iter();
        let senders = senders.filter_map(|(_, sender)| sender.next_timeout());
        let receivers = self.receivers.0.iter();
        let receivers = receivers.filter_map(|(_, receiver)| receiver.next_timeout());
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
        self.senders.0.iter().fold(self.past, |sum, (_, sender)| {
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
