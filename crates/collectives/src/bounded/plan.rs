//! From an operation and its memory to both phases of a bounded operation.

use std::ops::Range;

use farwrite::deadline::Collective;

use super::collect::Exchange;
use super::record::Layout;
use crate::element::{ElementType, Reduction};
use crate::error::CollectiveError;
use crate::operation::{Algorithm, Operation};
use crate::schedule::{self, Step};
use crate::sizes::{Place, Sizes};

/// What one rank does for a bounded operation.
#[derive(Debug)]
pub(crate) struct BoundedPlan {
    pub(crate) exchange: Exchange,
    pub(crate) layout: Layout,
    pub(crate) collective: Collective,
    /// Bytes of the operation, for its timeout.
    pub(crate) bytes: u64,
    /// Bytes of the result, which lies in front of the records in the working memory.
    pub(crate) result_bytes: u64,
    /// Bytes of the source that this rank contributes to its own result, and where they go.
    pub(crate) own: (Range<u64>, u64),
    /// Of an all-reduce: the part that each rank reduces.
    pub(crate) parts: Option<Vec<Range<u64>>>,
}

impl BoundedPlan {
    /// Plans an operation.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`] where it is always exact.
    pub(crate) fn new(
        place: &Place,
        operation: &Operation,
        values: Option<(ElementType, Reduction)>,
        sizes: &Sizes,
    ) -> Result<Self, CollectiveError> {
        let Place { rank, ranks, .. } = *place;
        if let Some((element, _)) = values.filter(|(element, _)| !element.is_float()) {
            return Err(place.wrong("element type", element, "bounded operations are for floats"));
        }
        let Contributions {
            collective,
            sends,
            receives,
            own,
        } = Contributions::of(place, operation, values, sizes)?;
        let packet_bytes = u64::from(place.packet_bytes);
        let parts = (collective == Collective::AllReduce).then(|| sends.clone());
        let lengths = parts.iter().flatten().map(|part| part.end - part.start);
        let packets = lengths.max().unwrap_or(0).div_ceil(packet_bytes);
        let result_bytes = sizes.output.unwrap_or(0);
        Ok(Self {
            layout: Layout {
                ranks,
                packets: to_usize(packets),
            },
            collective,
            bytes: sizes.total,
            result_bytes,
            own,
            exchange: Exchange {
                sends,
                receives,
                reduction: values,
                rank,
                packet_bytes,
                segment_bytes: packet_bytes * u64::from(place.packets_per_segment),
            },
            parts,
        })
    }

    /// The steps of the second phase.
    pub(crate) fn steps(&self, algorithm: Algorithm) -> Vec<Step> {
        let rank = self.exchange.rank;
        let mut steps = match (&self.parts, algorithm) {
            (None, _) => Vec::new(),
            (Some(parts), Algorithm::Direct) => schedule::direct_gather(rank, parts),
            (Some(parts), _) => schedule::ring_all_gather(rank, parts),
        };
        let records: Vec<_> = (0..self.layout.ranks)
            .map(|rank| self.record(rank))
            .collect();
        steps.extend(schedule::direct_gather(rank, &records));
        steps
    }

    /// Where a rank's record lies in the working memory.
    pub(crate) fn record(&self, rank: usize) -> Range<u64> {
        let bytes = self.layout.bytes() as u64;
        let start = self.result_bytes + rank as u64 * bytes;
        start..start + bytes
    }

    /// The working memory before anything has arrived.
    pub(crate) fn working_memory(&self, source: &[u8]) -> Vec<u8> {
        let length = self.record(self.layout.ranks).start;
        let mut work = vec![0; to_usize(length)];
        let (range, at) = &self.own;
        let own = &source[to_usize(range.start)..to_usize(range.end)];
        work[to_usize(*at)..][..own.len()].copy_from_slice(own);
        work
    }
}

/// What goes where in the first phase.
struct Contributions {
    collective: Collective,
    sends: Vec<Range<u64>>,
    receives: Vec<Range<u64>>,
    own: (Range<u64>, u64),
}

impl Contributions {
    fn of(
        place: &Place,
        operation: &Operation,
        values: Option<(ElementType, Reduction)>,
        sizes: &Sizes,
    ) -> Result<Self, CollectiveError> {
        let Place { rank, ranks, .. } = *place;
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
                    return Err(place.wrong("delivery", "bounded", expected));
                }
                let own = (sizes.sends[rank].clone(), sizes.receives[rank].start);
                let (sends, receives) = (sizes.sends.clone(), sizes.receives.clone());
                (Collective::AllToAll, sends, receives, own)
            }
            _ => {
                let expected = format!("{} is always exact", operation.name());
                return Err(place.wrong("delivery", "bounded", expected));
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

/// A place within memory.
fn to_usize(place: u64) -> usize {
    usize::try_from(place).expect("places lie within memory")
}
