//! The second phase of an all-reduce whose parts have a deadline. Every rank sends the part that it
//! has reduced to every other rank and uses the packets that arrive in time. In place of the others,
//! it uses its own contribution.

use std::ops::Range;

use farwrite::{Endpoint, Error, Fabric, SchemeTag};

use super::collect::{Collect, Collected, Times};
use super::exchange::Exchange;
use super::frames::{Frames, Piece};
use super::missing_ranges::MissingRanges;
use super::qp::BoundedQp;
use crate::index::{to_range, to_usize};
use crate::scratch::Scratch;

/// The parts of an all-reduce, and how they are sent.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    /// By rank: the part that it reduces.
    pub(crate) parts: Vec<Range<u64>>,
    pub(crate) frames: Frames,
}

/// The second phase in progress.
#[derive(Debug)]
pub(super) struct Sharing {
    /// The result of the first phase.
    first: Collected,
    /// The packets of the part of this rank.
    framed: Vec<u8>,
    /// The packets of the other parts, in the order of ranks.
    received: Vec<u8>,
    collect: Collect,
}

impl Shares {
    /// The size of the packets of a part of this length.
    fn framed_bytes(&self, part: &Range<u64>) -> u64 {
        self.frames.framed_bytes(part.end - part.start)
    }

    /// The sizes of both phases for all ranks together, which divide the time of the operation.
    pub(super) fn weights(&self) -> [u64; 2] {
        let first = self.parts.iter().map(|part| part.end - part.start);
        let second = self.parts.iter().map(|part| self.framed_bytes(part));
        [first.sum(), second.sum()]
    }

    /// The packets that each rank sends and receives. `first` is the exchange of the first phase.
    fn exchange(&self, first: &Exchange) -> Exchange {
        let own = first.rank;
        let mut end = 0;
        let receives = self.parts.iter().enumerate().map(|(rank, part)| {
            let start = end;
            end += if rank == own {
                0
            } else {
                self.framed_bytes(part)
            };
            start..end
        });
        let sent = 0..self.framed_bytes(&self.parts[own]);
        Exchange {
            receives: receives.collect(),
            sends: vec![sent; self.parts.len()],
            reduction: None,
            encoding: None,
            ..*first
        }
    }

    /// Begins the second phase. `work` has the part that this rank has reduced.
    pub(super) fn begin(
        &self,
        first_exchange: &Exchange,
        first: Collected,
        (qps, scheme): (&mut [Option<BoundedQp>], SchemeTag),
        work: &[u8],
        times: Times,
        scratch: &mut Scratch,
    ) -> Sharing {
        let exchange = self.exchange(first_exchange);
        let own = &self.parts[exchange.rank];
        let mut framed = scratch.take(to_usize(self.framed_bytes(own)));
        let has_arrived = |rank: usize, packet: usize| first.arrived[rank][packet];
        self.frames
            .write(&work[to_range(own)], &mut framed, has_arrived);
        let received = exchange.receives.iter().map(|range| range.end).max();
        let received = scratch.take(to_usize(received.unwrap_or(0)));
        Sharing {
            first,
            framed,
            received,
            collect: Collect::new(exchange, qps, scheme, times, scratch),
        }
    }
}

impl Sharing {
    pub(super) fn is_sent(&self) -> bool {
        self.collect.is_sent()
    }

    pub(super) fn waits_for(&self) -> Option<usize> {
        self.collect.waits_for()
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.collect.deadline_ns
    }

    pub(super) fn is_over(&self, now_ns: u64) -> bool {
        self.collect.is_over(now_ns)
    }

    /// Continues the second phase. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(super) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        now_ns: u64,
    ) -> Result<bool, Error> {
        self.collect
            .progress(endpoint, qps, &self.framed, &mut self.received, now_ns)
    }

    /// Ends the second phase: fills in the parts of other ranks in `work`. `exchange` is that of the
    /// first phase, and `source` has the contributions of this rank as they were sent.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(super) fn finish<F: Fabric>(
        self,
        (shares, exchange): (&Shares, &Exchange),
        endpoint: &Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        (source, work): (&[u8], &mut [u8]),
        now_ns: u64,
        scratch: &mut Scratch,
    ) -> Result<Collected, Error> {
        let Self {
            first,
            framed,
            mut received,
            collect,
        } = self;
        let Exchange {
            receives,
            rank: own,
            packet_bytes,
            ..
        } = collect.exchange().clone();
        let second = collect.finish(endpoint, qps, &mut received, now_ns, scratch)?;
        let mut lacks = MissingRanges::default();
        for (owner, part) in shares.parts.iter().enumerate() {
            let arrived = &second.arrived[owner];
            let framed = &received[to_range(&receives[owner])];
            if owner == own {
                lacks.add_packets(part, packet_bytes, shares.parts.len(), |rank, packet| {
                    first.arrived[rank][packet]
                });
            } else {
                let packets = (framed, &arrived[..]);
                shares.fill(part, packets, exchange, (source, work), &mut lacks);
            }
        }
        exchange.decode(work);
        scratch.give(framed);
        scratch.give(received);
        Ok(Collected {
            elapsed_ns: second.elapsed_ns,
            received_bytes: first.received_bytes + second.received_bytes,
            expected_bytes: first.expected_bytes + second.expected_bytes,
            timed_out: first.timed_out || second.timed_out,
            missing: Some(lacks.into_missing()),
            ..first
        })
    }
}

impl Shares {
    /// Fills in the part of another rank: the packets that arrived, and in place of the others the
    /// contribution of this rank.
    ///
    /// If contributions are transformed, packets hold coefficients of all values of their group of
    /// blocks. Only a group of which nothing arrived becomes the contribution of this rank. In
    /// others, what arrived is scaled up for what did not.
    fn fill(
        &self,
        part: &Range<u64>,
        (framed, arrived): (&[u8], &[bool]),
        first: &Exchange,
        (source, work): (&[u8], &mut [u8]),
        lacks: &mut MissingRanges,
    ) {
        let length = part.end - part.start;
        let in_part = |range: Range<u64>| part.start + range.start..part.start + range.end;
        let ranks = 0..self.parts.len();
        let groups = first.encoding.map(|encoding| {
            let groups = self.group_shares(length, arrived, encoding.group_bytes());
            (encoding, groups)
        });
        for (packet, &has_arrived) in arrived.iter().enumerate() {
            if has_arrived {
                for (piece, data, ranks) in self.frames.read(framed, length, packet) {
                    let range = in_part(piece.range);
                    work[to_range(&range)].copy_from_slice(data);
                    lacks.add(range, ranks);
                }
                continue;
            }
            for piece in self.frames.pieces(length, packet) {
                let has_others = groups.as_ref().is_some_and(|(encoding, groups)| {
                    groups[to_usize(piece.range.start / encoding.group_bytes())] > 0.0
                });
                let range = in_part(piece.range);
                let target = &mut work[to_range(&range)];
                if has_others {
                    target.fill(0);
                    lacks.add(range, ranks.clone().collect());
                } else {
                    target.copy_from_slice(&source[to_range(&range)]);
                    let others = ranks.clone().filter(|&rank| rank != first.rank);
                    lacks.add(range, others.collect());
                }
            }
        }
        if let Some((encoding, groups)) = groups {
            let part = &mut work[to_range(part)];
            let in_groups = part.chunks_mut(to_usize(encoding.group_bytes()));
            for (group, share) in in_groups.zip(groups) {
                if share > 0.0 && share < 1.0 {
                    encoding.scale(group, share.recip());
                }
            }
            encoding.decode(part);
        }
    }

    /// For each group of a part: the share of its bytes that arrived.
    fn group_shares(&self, length: u64, arrived: &[bool], group_bytes: u64) -> Vec<f32> {
        let mut bytes = vec![0; to_usize(length.div_ceil(group_bytes))];
        for (packet, _) in arrived.iter().enumerate().filter(|(_, arrived)| **arrived) {
            for Piece { range, .. } in self.frames.pieces(length, packet) {
                // A piece belongs to one packet of contributions, and that to one group.
                bytes[to_usize(range.start / group_bytes)] += range.end - range.start;
            }
        }
        let ends = (1..).map(|group| length.min(group * group_bytes));
        let starts = (0..).map(|group| group * group_bytes);
        let sizes = starts.zip(ends).map(|(start, end)| end - start);
        let shares = bytes.iter().zip(sizes);
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more digits")]
        shares
            .map(|(&there, size)| there as f32 / size as f32)
            .collect()
    }
}
