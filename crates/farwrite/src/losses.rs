//! What the path loses on its way to a queue pair.

use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::loss_meter::LossMeter;
use farwrite_schemes::order::WireOrder;
use farwrite_schemes::scheme::{Arrivals, Message, Path};
use farwrite_wire::control::SchemeTag;

/// A meter for each scheme in use: only the messages of one are sent in a known order.
#[derive(Default)]
pub(crate) struct Losses {
    meters: Vec<(SchemeTag, LossMeter)>,
    /// What meters have found that are gone.
    past: ChunkLoss,
}

impl Losses {
    /// A message was offered whose scheme has a receiving half, of which there are few.
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

    /// The meter of a scheme that has begun.
    pub(crate) fn meter(&mut self, scheme: SchemeTag) -> Option<&mut LossMeter> {
        let mut meters = self.meters.iter_mut();
        meters
            .find(|(tag, _)| *tag == scheme)
            .map(|(_, meter)| meter)
    }

    /// A packet came for a chunk that had arrived before, or whose message is over.
    pub(crate) fn handle_late(&mut self, message: u64, chunk: (u64, u32), is_whole: bool) {
        for (_, meter) in &mut self.meters {
            meter.handle_late(message, chunk, is_whole);
        }
    }

    pub(crate) fn handle_timeouts(&mut self, path: &Path, arrivals: &dyn Arrivals) {
        for (_, meter) in &mut self.meters {
            meter.handle_timeout(path.now_ns, arrivals);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let meters = self.meters.iter();
        meters.filter_map(|(_, meter)| meter.next_timeout()).min()
    }

    /// Ends all meters, which have no message: each is made again at its next use.
    pub(crate) fn rest(&mut self) {
        *self = Self {
            meters: Vec::new(),
            past: self.sum(),
        };
    }

    /// All together.
    pub(crate) fn sum(&self) -> ChunkLoss {
        let losses = self.meters.iter().map(|(_, meter)| meter.loss());
        losses.fold(self.past, |sum, loss| sum.and(&loss))
    }
}
