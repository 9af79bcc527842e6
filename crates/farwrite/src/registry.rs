//! Which schemes an endpoint knows, and the halves of them that a queue pair runs.

use farwrite_schemes::scheme::{Arrivals, Path, Receiver, Scheme, Sender, SenderCounters};
use farwrite_sdr::Received;
use farwrite_wire::control::SchemeTag;

/// Turns a tag that a peer offered into the scheme it names; `None` for a foreign tag.
pub type SchemeResolver = fn(SchemeTag) -> Option<Box<dyn Scheme>>;

/// Different schemes, or parameters, that a peer may use on one queue pair. The tags come from the
/// peer, so their number must have a bound.
const MAX_RECEIVERS: usize = 16;

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

    /// Whether messages of the scheme may end as partial, whatever their receives were posted for.
    pub(crate) fn is_bounded(&self, tag: SchemeTag) -> bool {
        self.find(tag).is_some_and(|scheme| scheme.is_bounded())
    }
}

/// The scheme halves of one queue pair, one of each kind a tag.
#[derive(Default)]
pub(crate) struct Halves {
    senders: Vec<(SchemeTag, Box<dyn Sender + Send>)>,
    receivers: Vec<(SchemeTag, Box<dyn Receiver + Send>)>,
    /// The sender that was pulled last, so that the next pull starts behind it.
    turn: usize,
    /// What halves have done that are gone.
    past: SenderCounters,
}

impl Halves {
    /// The sending half for a tag, made at its first use; `None` for an unknown scheme.
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

    /// The sending half for a tag that has one.
    pub(crate) fn existing_sender(&mut self, tag: SchemeTag) -> Option<&mut (dyn Sender + Send)> {
        self.senders
            .iter_mut()
            .find(|(t, _)| *t == tag)
            .map(|(_, sender)| &mut **sender as _)
    }

    /// The receiving half for a tag, made at its first use; `None` for an unknown scheme, or when
    /// the peer already uses too many.
    pub(crate) fn receiver(
        &mut self,
        tag: SchemeTag,
        known: &Registry,
    ) -> Option<&mut (dyn Receiver + Send)> {
        let index = match self.receivers.iter().position(|(t, _)| *t == tag) {
            Some(index) => index,
            None if self.receivers.len() >= MAX_RECEIVERS => return None,
            None => {
                self.receivers.push((tag, known.find(tag)?.receiver()));
                self.receivers.len() - 1
            }
        };
        Some(&mut *self.receivers[index].1)
    }

    /// The receiving half for a tag that has one.
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

    /// The senders in turn, so that none starves another: the one after the last is first.
    pub(crate) fn next_sender(&mut self) -> Option<&mut (dyn Sender + Send)> {
        self.turn = (self.turn + 1) % self.senders.len().max(1);
        self.senders
            .get_mut(self.turn)
            .map(|(_, sender)| &mut **sender as _)
    }

    /// One of the senders, `0..sender_count`.
    pub(crate) fn sender_at(&mut self, index: usize) -> &mut (dyn Sender + Send) {
        &mut *self.senders[index].1
    }

    /// One of the receivers, `0..receiver_count`.
    pub(crate) fn receiver_at(&mut self, index: usize) -> &mut (dyn Receiver + Send) {
        &mut *self.receivers[index].1
    }

    pub(crate) fn receiver_count(&self) -> usize {
        self.receivers.len()
    }

    pub(crate) fn sender_count(&self) -> usize {
        self.senders.len()
    }

    pub(crate) fn handle_timeouts(&mut self, path: &Path, received: &Received) {
        let due = |timeout: Option<u64>| timeout.is_some_and(|at| at <= path.now_ns);
        for sender in self.senders().filter(|sender| due(sender.next_timeout())) {
            sender.handle_timeout(path);
        }
        let arrivals = TableArrivals(received);
        for receiver in self
            .receivers()
            .filter(|receiver| due(receiver.next_timeout()))
        {
            receiver.handle_timeout(path, &arrivals);
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

    /// Ends all halves, which have no message: each is made again at its next use.
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

/// What has arrived, as schemes look at it.
pub(crate) struct TableArrivals<'a>(pub(crate) &'a Received);

impl Arrivals for TableArrivals<'_> {
    fn word(&self, message: u64, word: u32) -> u64 {
        self.0.word(message, word)
    }

    fn count(&self, message: u64) -> u32 {
        self.0.count(message)
    }

    fn seen(&self, message: u64) -> u32 {
        self.0.seen(message)
    }

    fn immediate_is_whole(&self, message: u64) -> bool {
        self.0.immediate_is_whole(message)
    }
}
