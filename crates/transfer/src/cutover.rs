//! When a stream may continue over a queue pair with smaller packets (a cutover), and how each end checks
//! the peer's messages about it (P8.5).

use farwrite::QpConfig;
use farwrite_files::TransferPlan;

use crate::shape::{MIN_TRANSFER_MTU, Shape};
use crate::{Error, ErrorKind, SchemeSetting};

/// How often a stream may change to another queue pair. Common links have ten sizes (`shape.rs`),
/// and a path rarely meets more than one of them. Each takes seconds, so tests have a lower limit.
pub(crate) const MAX_CUTOVERS: u32 = if cfg!(test) { 2 } else { 8 };

/// The state that a receiver checks a cutover against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutoverTerms<'a> {
    pub(crate) plan: &'a TransferPlan,
    /// The current shape.
    pub(crate) shape: Shape,
    pub(crate) scheme: SchemeSetting,
    /// Segments that have arrived without a gap, counted from the start of the stream.
    pub(crate) arrived: u64,
}

impl CutoverTerms<'_> {
    /// Returns the shape with which the sender continues.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] for packets that are not smaller than before, different chunks, more
    /// segments in flight, or a first segment that is impossible for the sender.
    pub(crate) fn check(&self, first_segment: u64, config: &QpConfig) -> Result<Shape, Error> {
        let mismatch = |what: String| Err(Error::new(ErrorKind::Mismatch, what));
        let (mtu, slots) = (self.shape.mtu, self.shape.slots);
        if !(MIN_TRANSFER_MTU..mtu).contains(&config.mtu) {
            return mismatch(format!(
                "the sender cuts over to packets of {} bytes; want at least {MIN_TRANSFER_MTU} and fewer \
                 than {mtu}, as before",
                config.mtu
            ));
        }
        let per_chunk = self.shape.packets_per_chunk;
        if config.packets_per_chunk != per_chunk {
            return mismatch(format!(
                "the sender cuts over to chunks of {} packets; want {per_chunk}, as before",
                config.packets_per_chunk
            ));
        }
        if config.slots > slots {
            return mismatch(format!(
                "the sender cuts over with {} segments in flight; want at most {slots}, as before",
                config.slots
            ));
        }
        let earliest = self.arrived.saturating_sub(slots.into());
        if !(earliest..=self.arrived).contains(&first_segment) {
            return mismatch(format!(
                "the sender cuts over from segment {first_segment}; want one from {earliest} to {}, \
                 the first that has not arrived",
                self.arrived
            ));
        }
        // The memory was agreed on. With smaller packets and the same number in a chunk, the parity
        // of a segment grows by at most that of one group.
        Shape::of_peer(self.plan, config, u64::MAX, self.scheme.most_parity())
    }
}

/// Checks that the segments that a receiver reports are among the `sent` ones from `first_segment`
/// on, in ascending order. Returns their indices there.
pub(crate) fn arrived_indices(
    finished: &[u64],
    first_segment: u64,
    sent: usize,
) -> Result<Vec<usize>, Error> {
    let mut indices: Vec<usize> = Vec::new();
    for &segment in finished {
        let index = segment.checked_sub(first_segment);
        let index = index.and_then(|index| usize::try_from(index).ok());
        let index = index.filter(|index| *index < sent && indices.last().is_none_or(|l| l < index));
        indices.push(index.ok_or_else(|| {
            let what = format!(
                "the receiver says that segment {segment} has arrived; want segments in ascending \
                 order, of the {sent} from {first_segment} on"
            );
            Error::new(ErrorKind::Mismatch, what)
        })?);
    }
    Ok(indices)
}

#[cfg(test)]
mod tests {
    use farwrite::SchemeName;
    use farwrite_keys::Text;

    use super::*;

    const SHAPE: Shape = Shape {
        mtu: 8936,
        packets_per_chunk: 1,
        segment_bytes: 1 << 20,
        parity_bytes: 0,
        slots: 8,
        stream_bytes: 100 << 20,
    };

    fn plan() -> TransferPlan {
        TransferPlan {
            scheme: Text::new("sr-nack"),
            segment_bytes: SHAPE.segment_bytes,
            entries: 1,
            stream_bytes: SHAPE.stream_bytes,
        }
    }

    fn terms(plan: &TransferPlan) -> CutoverTerms<'_> {
        CutoverTerms {
            plan,
            shape: SHAPE,
            scheme: SchemeSetting::Named(SchemeName::SrNack),
            arrived: 20,
        }
    }

    fn config(mtu: u32, slots: u32) -> QpConfig {
        QpConfig {
            mtu,
            slots,
            ..SHAPE.config()
        }
    }

    #[test]
    fn smaller_packets_from_a_segment_in_reach_are_taken() {
        let plan = plan();
        for first in [12, 15, 20] {
            let shape = terms(&plan).check(first, &config(1436, 8)).expect("taken");
            assert_eq!((shape.mtu, shape.slots), (1436, 8));
            assert_eq!(shape.segments(), SHAPE.segments());
        }
    }

    #[test]
    fn wishes_out_of_range_are_refused_by_their_value() {
        let plan = plan();
        let refused = |first, config: QpConfig| {
            let error = terms(&plan).check(first, &config).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Mismatch);
            error.to_string()
        };
        for first in [0, 11, 21, u64::MAX] {
            let text = refused(first, config(1436, 8));
            assert!(text.contains(&format!("segment {first};")), "{text}");
        }
        for mtu in [0, 252, 8936, 9000, u32::MAX] {
            let text = refused(20, config(mtu, 8));
            assert!(text.contains(&format!("packets of {mtu} bytes")), "{text}");
        }
        let text = refused(20, config(1436, 16));
        assert!(text.contains("16 segments"), "{text}");
        let coarse = QpConfig {
            packets_per_chunk: 1 << 16,
            ..config(1436, 8)
        };
        let text = refused(20, coarse);
        assert!(text.contains("chunks of 65536 packets"), "{text}");
        let longer = QpConfig {
            max_message_bytes: 2 << 20,
            ..config(1436, 8)
        };
        let text = refused(20, longer);
        assert!(text.contains("messages of 2097152"), "{text}");
    }

    #[test]
    fn arrived_segments_are_among_those_sent() {
        assert_eq!(arrived_indices(&[5, 7, 9], 5, 5).expect("sent"), [0, 2, 4]);
        assert_eq!(arrived_indices(&[], 5, 0).expect("none"), [0_usize; 0]);
        for (finished, wrong) in [
            (vec![4], 4),
            (vec![10], 10),
            (vec![6, 6], 6),
            (vec![7, 6], 6),
            (vec![u64::MAX], u64::MAX),
        ] {
            let error = arrived_indices(&finished, 5, 5).expect_err("refused");
            let text = error.to_string();
            assert!(text.contains(&format!("segment {wrong} ")), "{text}");
        }
    }
}
