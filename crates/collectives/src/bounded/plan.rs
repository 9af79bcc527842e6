//! Computes both phases of a bounded operation from the operation and its memory.

use std::ops::Range;

use farwrite_deadline::Collective;

use super::exchange::Exchange;
use super::frames::Frames;
use super::hadamard::Encoding;
use super::record::Layout;
use super::ring::RingPlan;
use super::shares::Shares;
use crate::element::{ElementType, Reduction};
use crate::error::CollectiveError;
use crate::group_view::GroupView;
use crate::index::{to_range, to_usize};
use crate::operation::{Algorithm, Delivery, Operation};
use crate::schedule::{self, Step};
use crate::scratch::Scratch;
use crate::sizes::Sizes;

/// What one rank does for a bounded operation.
#[derive(Debug)]
pub(crate) struct BoundedPlan {
    pub(crate) exchange: Exchange,
    pub(crate) collective: Collective,
    /// The size of the operation in bytes, which selects its timeout.
    pub(crate) bytes: u64,
    /// The size of the result in bytes. In the working memory, records follow it.
    pub(crate) result_bytes: u64,
    /// The bytes of the source that this rank contributes to its own result, and their destination.
    pub(crate) own: (Range<u64>, u64),
    /// For an all-reduce with exact parts: how all ranks get all parts.
    pub(crate) gather: Option<Gather>,
    /// The same if the parts have a deadline.
    pub(crate) shares: Option<Shares>,
    /// For an all-reduce around a ring, instead of the exchange: its steps. With a deadline for the
    /// parts too, there are neither `gather` nor `shares`.
    pub(crate) ring: Option<RingPlan>,
    /// The contributions of this rank, if they are transformed.
    pub(crate) encoded: Option<Vec<u8>>,
}

/// The second phase of an all-reduce with exact parts.
#[derive(Debug)]
pub(crate) struct Gather {
    /// By rank: the part that it reduces.
    pub(crate) parts: Vec<Range<u64>>,
    /// The layout of the records that are sent with the parts.
    pub(crate) layout: Layout,
    /// The number of bytes of a part that a packet of the first phase carries.
    pub(crate) packet_bytes: u64,
}

impl BoundedPlan {
    /// Plans an operation.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`] where it is always exact.
    pub(crate) fn new(
        view: &GroupView,
        operation: &Operation,
        values: Option<(ElementType, Reduction)>,
        sizes: &Sizes,
    ) -> Result<Self, CollectiveError> {
        let GroupView { rank, ranks, .. } = *view;
        if let Some((element, _)) = values.filter(|(element, _)| !element.is_float()) {
            return Err(view.wrong("element type", element, "bounded operations are for floats"));
        }
        let Contributions {
            collective,
            sends,
            receives,
            own,
        } = Contributions::of(view, operation, values, sizes)?;
        let packet_bytes = u64::from(view.packet_bytes);
        let segment_bytes = packet_bytes * u64::from(view.packets_per_segment);
        let encoding = Encoding::new(view.hadamard, values, packet_bytes);
        let is_all_reduce = collective == Collective::AllReduce;
        let has_shares = is_all_reduce && view.parts == Delivery::Bounded;
        let ring = values.filter(|_| is_all_reduce && view.has_ring());
        let ring = ring.map(|values| RingPlan {
            parts: sends.clone(),
            rank,
            values,
            encoding,
            packet_bytes,
            segment_bytes,
            has_shares,
        });
        let frames = Frames::new(ranks, packet_bytes).filter(|_| has_shares && ring.is_none());
        let shares = frames.map(|frames| Shares {
            parts: sends.clone(),
            frames,
        });
        let gather = (is_all_reduce && !has_shares).then(|| {
            let packet_bytes = ring.as_ref().map_or(packet_bytes, RingPlan::data_bytes);
            let lengths = sends.iter().map(|part| part.end - part.start);
            let packets = lengths.max().unwrap_or(0).div_ceil(packet_bytes);
            let packets = to_usize(packets);
            Gather {
                parts: sends.clone(),
                layout: Layout { ranks, packets },
                packet_bytes,
            }
        });
        // Around a ring, a rank contributes to all parts on their way.
        let own = match &ring {
            Some(_) => (0..sizes.total, 0),
            None => own,
        };
        Ok(Self {
            collective,
            bytes: sizes.total,
            result_bytes: sizes.output.unwrap_or(0),
            own,
            exchange: Exchange {
                sends,
                receives,
                reduction: values,
                encoding,
                rank,
                packet_bytes,
                segment_bytes,
            },
            gather,
            shares,
            ring,
            encoded: None,
        })
    }

    /// The steps of the second phase.
    pub(crate) fn steps(&self, algorithm: Algorithm) -> Vec<Step> {
        let rank = self.exchange.rank;
        let Some(Gather { parts, layout, .. }) = &self.gather else {
            return Vec::new();
        };
        let mut steps = match algorithm {
            Algorithm::Direct => schedule::direct_gather(rank, parts),
            _ => schedule::ring_all_gather(rank, parts),
        };
        let records = (0..layout.ranks).map(|rank| self.record(*layout, rank));
        let records: Vec<_> = records.collect();
        steps.extend(schedule::direct_gather(rank, &records));
        steps
    }

    /// For an all-reduce: the part that each rank reduces.
    pub(crate) fn parts(&self) -> Option<&[Range<u64>]> {
        let gathered = self.gather.as_ref().map(|gather| &gather.parts);
        let parts = gathered.or(self.shares.as_ref().map(|shares| &shares.parts));
        parts.map(Vec::as_slice)
    }

    /// Where the record of a rank lies in the working memory.
    pub(crate) fn record(&self, layout: Layout, rank: usize) -> Range<u64> {
        let bytes = layout.bytes() as u64;
        let start = self.result_bytes + rank as u64 * bytes;
        start..start + bytes
    }

    /// The size of the working memory in bytes.
    fn work_bytes(&self) -> u64 {
        let end = |gather: &Gather| self.record(gather.layout, gather.layout.ranks).start;
        self.gather.as_ref().map_or(self.result_bytes, end)
    }

    /// Transforms the contributions of this rank if the plan requires it, and creates the working
    /// memory, which holds only these contributions.
    pub(crate) fn prepare(&mut self, source: &[u8], scratch: &mut Scratch) -> Vec<u8> {
        let Exchange {
            encoding,
            ref sends,
            ..
        } = self.exchange;
        self.encoded = encoding.map(|encoding| encoding.encode(source, sends));
        let source = self.encoded.as_deref().unwrap_or(source);
        let mut work = scratch.take(to_usize(self.work_bytes()));
        // A reduction writes its whole result. Elsewhere, what does not arrive is 0.
        let written = self.exchange.reduction.map_or(0, |_| self.result_bytes);
        work[to_usize(written)..].fill(0);
        let (range, at) = &self.own;
        let own = &source[to_range(range)];
        work[to_usize(*at)..][..own.len()].copy_from_slice(own);
        work
    }
}

/// The source and the destination of each range of bytes in the first phase.
struct Contributions {
    collective: Collective,
    sends: Vec<Range<u64>>,
    receives: Vec<Range<u64>>,
    own: (Range<u64>, u64),
}

impl Contributions {
    fn of(
        view: &GroupView,
        operation: &Operation,
        values: Option<(ElementType, Reduction)>,
        sizes: &Sizes,
    ) -> Result<Self, CollectiveError> {
        let GroupView { rank, ranks, .. } = *view;
        let element_bytes = values.map_or(1, |(element, _)| element.bytes());
        let parts = schedule::cut(sizes.total / element_bytes, element_bytes, ranks);
        let part = parts[rank].clone();
        let whole = 0..part.end - part.start;
        let (collective, sends, receives, own) = match operation {
            Operation::AllReduce { .. } => {
                let own = (part.clone(), part.start);
                (Collective::AllReduce, parts, vec![part; ranks], own)
            }
            Operation::ReduceScatter { .. } => (
                Collective::ReduceScatter,
                parts,
                vec![whole; ranks],
                (part, 0),
            ),
            Operation::AllGather => {
                let start = part.start;
                let source = if sizes.input.is_some() { whole } else { part };
                let sends = vec![source.clone(); ranks];
                (Collective::AllGather, sends, parts, (source, start))
            }
            Operation::AllToAll {
                send_bytes,
                receive_bytes,
            } => {
                if !send_bytes.is_empty() || !receive_bytes.is_empty() {
                    let expected = "an all-to-all of given sizes is always exact";
                    return Err(view.wrong("delivery", "bounded", expected));
                }
                let own = (sizes.sends[rank].clone(), sizes.receives[rank].start);
                let (sends, receives) = (sizes.sends.clone(), sizes.receives.clone());
                (Collective::AllToAll, sends, receives, own)
            }
            _ => {
                let expected = format!("{} is always exact", operation.name());
                return Err(view.wrong("delivery", "bounded", expected));
            }
        };
        Ok(Self {
            collective,
            sends,
            receives,
            own,
        })
    }
}
