//! Measures what the path loses on its way to a queue pair.

use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::go_back_n::GoBackN;
use farwrite_schemes::loss_meter::{LateChunk, LossMeter};
use farwrite_schemes::order::WireOrder;
use farwrite_schemes::scheme::{Arrivals, Message, MessageId, PeerView};
use farwrite_wire::control::{Nack, SchemeTag};

/// One meter for each scheme in use. Only messages with the same scheme are sent in a known order.
#[derive(Default)]
pub(crate) struct Losses {
    meters: Vec<(SchemeTag, LossMeter)>,
    /// Results of meters that no longer exist.
    past: ChunkLoss,
}

impl Losses {
    /// Begins to meter an offered message. Its scheme has a receiving half, and the number of
    /// receiving halves is small.
    pub(crate) fn begin(
        &mut self,
        scheme: SchemeTag,
        message: &Message,
        order: Box<dyn WireOrder + Send>,
    ) {
        if self.meter(scheme).is_none() {
            self.meters.push((scheme, LossMeter::default()));
        }
        if let Some(meter) = self.meter(scheme) {
            meter.begin(message, order);
        }
    }

    /// Returns the meter of a scheme that has begun.
    pub(crate) fn meter(&mut self, scheme: SchemeTag) -> Option<&mut LossMeter> {
        let mut meters = self.meters.iter_mut();
        meters
            .find(|(tag, _)| *tag == scheme)
            .map(|(_, meter)| meter)
    }

    /// Checks for new chunks of a message. A repair comes after `answer_ns` at the earliest.
    pub(crate) fn look(
        &mut self,
        view: &PeerView,
        answer_ns: u64,
        (scheme, message): (SchemeTag, u64),
        arrivals: &dyn Arrivals,
    ) {
        // Go-back-N also repeats chunks that were not requested, at any time.
        let repair_ns = match scheme.id {
            GoBackN::ID => 0,
            _ => answer_ns,
        };
        if let Some(meter) = self.meter(scheme) {
            meter.look(view, repair_ns, message, arrivals);
        }
    }

    /// Records a packet for a chunk that had already arrived, or for a message that has ended.
    pub(crate) fn handle_late(&mut self, now_ns: u64, chunk: (MessageId, u32), is_whole: bool) {
        for (_, meter) in &mut self.meters {
            meter.handle_late(now_ns, chunk, is_whole);
        }
    }

    /// Records that chunks are requested from the sender.
    pub(crate) fn handle_request(&mut self, view: &PeerView, nack: &Nack) {
        let end = nack.lost.last().map_or(0, |range| range.end);
        for (_, meter) in &mut self.meters {
            meter.handle_request(view, nack.message, end);
        }
    }

    /// Returns chunks that arrived after later ones since the last call.
    pub(crate) fn take_late(&mut self) -> Vec<LateChunk> {
        let meters = self.meters.iter_mut();
        meters.flat_map(|(_, meter)| meter.take_late()).collect()
    }

    pub(crate) fn handle_timeouts(&mut self, view: &PeerView, arrivals: &dyn Arrivals) {
        for (_, meter) in &mut self.meters {
            meter.handle_timeout(view.now_ns, arrivals);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let meters = self.meters.iter();
        meters.filter_map(|(_, meter)| meter.next_timeout()).min()
    }

    /// Ends all meters. None of them has a message. Each meter is created again at its next use.
    pub(crate) fn rest(&mut self) {
        *self = Self {
            meters: Vec::new(),
            past: self.sum(),
        };
    }

    /// Returns the sum over all meters, past and present.
    pub(crate) fn sum(&self) -> ChunkLoss {
        let losses = self.meters.iter().map(|(_, meter)| meter.loss());
        losses.fold(self.past, |sum, loss| sum.and(&loss))
    }
}
