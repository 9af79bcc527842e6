//! What the path loses on its way to a queue pair.

use farwrite_schemes::chunk_loss::ChunkLoss;
use farwrite_schemes::loss_meter::LossMeter;
use farwrite_schemes::order::WireOrder;
use farwrite_schemes::scheme::{Arrivals, Message, Path};
use farwrite_wire::control::SchemeTag;

/// A meter for each scheme in use: only the messages of one are sent in a known order.
#[derive(Default)]
pub(crate) struct Losses(Vec<(SchemeTag, LossMeter)>);

impl Losses {
    /// A message was offered whose scheme has a receiving half, of which there are few.
    pub(crate) fn begin(
        &mut self,
        scheme: SchemeTag,
        message: &Message,
        order: Box<dyn WireOrder + Send>,
    ) {
        if self.meter(scheme).is_none() {
            self.0.push((scheme, LossMeter::default()));
        }
        if let Some(meter) = self.meter(scheme) {
            meter.begin(message, order);
        }
    }

    /// The meter of a scheme that has begun.
    pub(crate) fn meter(&mut self, scheme: SchemeTag) -> Option<&mut LossMeter> {
        let mut meters = self.0.iter_mut();
        meters
            .find(|(tag, _)| *tag == scheme)
            .map(|(_, meter)| meter)
    }

    /// A packet came for a chunk that had arrived before, or whose message is over.
    pub(crate) fn handle_late(&mut self, message: u64, chunk: (u64, u32), is_whole: bool) {
        for (_, meter) in &mut self.0 {
            meter.handle_late(message, chunk, is_whole);
        }
    }

    pub(crate) fn handle_timeouts(&mut self, path: &Path, arrivals: &dyn Arrivals) {
        for (_, meter) in &mut self.0 {
            meter.handle_timeout(path.now_ns, arrivals);
        }
    }

    pub(crate) fn next_timeout(&self) -> Option<u64> {
        let meters = self.0.iter();
        meters.filter_map(|(_, meter)| meter.next_timeout()).min()
    }

    /// All together.
    pub(crate) fn sum(&self) -> ChunkLoss {
        let losses = self.0.iter().map(|(_, meter)| meter.loss());
        losses.fold(ChunkLoss::default(), |sum, loss| sum.and(&loss))
    }
}
