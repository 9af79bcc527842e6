//! The part of a bounded operation that has a deadline: every rank sends to every other one what it
//! contributes, and takes what has come in time.

use std::ops::Range;

use farwrite::{Endpoint, Error, Fabric};

use super::lane::{Arrival, BoundedLane};
use crate::element::{ElementType, Reduction};
use crate::kernel;

/// Which bytes go where, and what becomes of them.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// By rank: bytes of the source that it gets.
    pub(crate) sends: Vec<Range<u64>>,
    /// By rank: where in the working memory its bytes go.
    pub(crate) receives: Vec<Range<u64>>,
    /// How they join those that are there; `None`: they replace them.
    pub(crate) reduction: Option<(ElementType, Reduction)>,
    pub(crate) rank: usize,
    pub(crate) packet_bytes: u64,
    pub(crate) segment_bytes: u64,
}

/// An exchange on its way.
#[derive(Debug)]
pub(crate) struct Collect {
    exchange: Exchange,
    /// By rank: bytes of the source that are not sent yet.
    outgoing: Vec<Range<u64>>,
    incoming: Vec<Incoming>,
    pub(crate) started_ns: u64,
    /// When it ends at the latest.
    pub(crate) deadline_ns: Option<u64>,
}

/// What comes from one rank.
#[derive(Debug)]
struct Incoming {
    /// What a reduction waits for.
    staged: Vec<u8>,
    /// By packet.
    arrived: Vec<bool>,
    /// Messages that are taken.
    segments: u64,
}

/// What an exchange brought.
#[derive(Debug)]
pub(crate) struct Collected {
    /// By rank and packet.
    pub(crate) arrived: Vec<Vec<bool>>,
    pub(crate) received_bytes: u64,
    pub(crate) expected_bytes: u64,
    /// Bytes of messages that ended without them, before any deadline.
    pub(crate) dropped_bytes: u64,
    pub(crate) timed_out: bool,
}

impl Collect {
    pub(crate) fn new(exchange: Exchange, started_ns: u64, timeout_ns: Option<u64>) -> Self {
        let incoming = exchange.receives.iter().enumerate().map(|(rank, range)| {
            let bytes = range.end - range.start;
            let is_own = rank == exchange.rank;
            let staged = match exchange.reduction {
                Some(_) if !is_own => vec![0; to_usize(bytes)],
                _ => Vec::new(),
            };
            let packets = to_usize(bytes.div_ceil(exchange.packet_bytes));
            Incoming {
                staged,
                arrived: vec![is_own; packets],
                segments: if is_own { u64::MAX } else { 0 },
            }
        });
        let incoming = incoming.collect();
        let mut outgoing = exchange.sends.clone();
        outgoing[exchange.rank] = 0..0;
        Self {
            incoming,
            outgoing,
            exchange,
            started_ns,
            deadline_ns: timeout_ns.map(|ns| started_ns.saturating_add(ns)),
        }
    }

    /// Sends and takes what can be. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        lanes: &mut [Option<BoundedLane>],
        source: &[u8],
        work: &mut [u8],
    ) -> Result<bool, Error> {
        let mut moved = false;
        for (peer, lane) in lanes.iter_mut().enumerate() {
            let Some(lane) = lane else {
                continue;
            };
            lane.tend(endpoint)?;
            moved |= self.send(endpoint, lane, peer, source)?;
            while self.take_next(endpoint, lane, peer, work)? {
                lane.release();
                moved = true;
            }
            lane.tend(endpoint)?;
        }
        Ok(moved)
    }

    /// Takes the next message of a rank, if it is over.
    fn take_next<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        lane: &BoundedLane,
        peer: usize,
        work: &mut [u8],
    ) -> Result<bool, Error> {
        let next = self.incoming[peer].segments;
        let first = lane.arrivals().next();
        let is_next = |(number, arrival): &(u64, Arrival<'_>)| *number == next && arrival.is_over();
        let Some((number, arrival)) = first.filter(is_next) else {
            return Ok(false);
        };
        if number >= self.segments_from(peer) {
            return Ok(false);
        }
        self.take(endpoint, peer, number, &arrival, work)?;
        self.incoming[peer].segments += 1;
        Ok(true)
    }

    /// Whether everything is sent and every message is over.
    pub(crate) fn is_complete(&self) -> bool {
        let is_sent = self.outgoing.iter().all(Range::is_empty);
        let peers = 0..self.incoming.len();
        is_sent && peers.into_iter().all(|peer| self.has_all_from(peer))
    }

    fn has_all_from(&self, peer: usize) -> bool {
        self.incoming[peer].segments >= self.segments_from(peer)
    }

    /// Ends it, complete or not: takes what is there of messages that are not over, and reduces.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn finish<F: Fabric>(
        mut self,
        endpoint: &Endpoint<F>,
        lanes: &[Option<BoundedLane>],
        work: &mut [u8],
    ) -> Result<Collected, Error> {
        let timed_out = !self.is_complete();
        let dropped_bytes = self.missing_bytes(|incoming| incoming.segments);
        for (peer, lane) in lanes.iter().enumerate() {
            let Some(lane) = lane else {
                continue;
            };
            for (number, arrival) in lane.arrivals() {
                if number >= self.incoming[peer].segments && number < self.segments_from(peer) {
                    self.take(endpoint, peer, number, &arrival, work)?;
                }
            }
        }
        self.reduce(work);
        let expected = self.exchange.receives.iter().enumerate();
        let expected = expected.filter(|(peer, _)| *peer != self.exchange.rank);
        let expected_bytes = expected.map(|(_, range)| range.end - range.start).sum();
        let missing_bytes = self.missing_bytes(|_| u64::MAX);
        Ok(Collected {
            arrived: self
                .incoming
                .into_iter()
                .map(|incoming| incoming.arrived)
                .collect(),
            received_bytes: expected_bytes - missing_bytes,
            expected_bytes,
            dropped_bytes,
            timed_out,
        })
    }

    /// Sends as many messages to a rank as there is room for.
    fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        lane: &mut BoundedLane,
        peer: usize,
        source: &[u8],
    ) -> Result<bool, Error> {
        let mut moved = false;
        while !self.outgoing[peer].is_empty() {
            let Range { start, end } = self.outgoing[peer];
            let end = end.min(start + self.exchange.segment_bytes);
            let payload = &source[to_usize(start)..to_usize(end)];
            if !lane.send(endpoint, payload, self.deadline_ns)? {
                break;
            }
            self.outgoing[peer].start = end;
            moved = true;
        }
        Ok(moved)
    }

    fn segments_from(&self, peer: usize) -> u64 {
        let range = &self.exchange.receives[peer];
        (range.end - range.start).div_ceil(self.exchange.segment_bytes)
    }

    /// Takes the packets of a message that are there.
    fn take<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        peer: usize,
        number: u64,
        arrival: &Arrival<'_>,
        work: &mut [u8],
    ) -> Result<(), Error> {
        let Exchange {
            packet_bytes,
            segment_bytes,
            ..
        } = self.exchange;
        let range = self.exchange.receives[peer].clone();
        let first = number * segment_bytes;
        let bytes = segment_bytes.min(range.end - range.start - first);
        let arrived = arrival.packets(to_usize(bytes.div_ceil(packet_bytes)), packet_bytes);
        let incoming = &mut self.incoming[peer];
        let target = match self.exchange.reduction {
            Some(_) => &mut incoming.staged[..],
            None => &mut work[to_usize(range.start)..to_usize(range.end)],
        };
        for run in runs(&arrived) {
            let start = run.start as u64 * packet_bytes;
            let end = bytes.min(run.end as u64 * packet_bytes);
            let target = &mut target[to_usize(first + start)..to_usize(first + end)];
            arrival.read(endpoint, start, target)?;
        }
        let first = to_usize(first / packet_bytes);
        incoming.arrived[first..first + arrived.len()].copy_from_slice(&arrived);
        Ok(())
    }

    /// Joins what is there, rank by rank from this one on.
    fn reduce(&self, work: &mut [u8]) {
        let Some((element, reduction)) = self.exchange.reduction else {
            return;
        };
        let Exchange {
            rank,
            packet_bytes,
            ref receives,
            ..
        } = self.exchange;
        let range = &receives[rank];
        let own = &mut work[to_usize(range.start)..to_usize(range.end)];
        let packets = self.incoming[rank].arrived.len();
        let ranks = self.incoming.len();
        let others = (1..ranks).map(|distance| (rank + distance) % ranks);
        let bytes_of = |run: &Range<usize>, length: usize| {
            let packet_bytes = to_usize(packet_bytes);
            run.start * packet_bytes..length.min(run.end * packet_bytes)
        };
        for peer in others {
            let incoming = &self.incoming[peer];
            for run in runs(&incoming.arrived) {
                let bytes = bytes_of(&run, own.len());
                let theirs = &incoming.staged[bytes.clone()];
                kernel::reduce(element, reduction, &mut own[bytes], theirs);
            }
        }
        if reduction != Reduction::Mean {
            return;
        }
        for packet in 0..packets {
            let contributors = self
                .incoming
                .iter()
                .filter(|incoming| incoming.arrived[packet]);
            let contributors = u32::try_from(contributors.count()).unwrap_or(u32::MAX);
            let bytes = bytes_of(&(packet..packet + 1), own.len());
            kernel::divide(element, &mut own[bytes], contributors);
        }
    }

    /// Bytes that are missing of the first messages from each rank, as many as `segments` says.
    fn missing_bytes(&self, segments: impl Fn(&Incoming) -> u64) -> u64 {
        let Exchange {
            packet_bytes,
            segment_bytes,
            ..
        } = self.exchange;
        let of_peer = |(incoming, range): (&Incoming, &Range<u64>)| {
            let bytes = range.end - range.start;
            let end = bytes.min(segments(incoming).saturating_mul(segment_bytes));
            let missing = incoming
                .arrived
                .iter()
                .zip((0_u64..).map(|i| i * packet_bytes));
            let missing = missing.filter(|(arrived, start)| !**arrived && *start < end);
            missing
                .map(|(_, start)| packet_bytes.min(bytes - start))
                .sum::<u64>()
        };
        self.incoming
            .iter()
            .zip(&self.exchange.receives)
            .map(of_peer)
            .sum()
    }
}

/// The runs of what is set.
pub(super) fn runs(set: &[bool]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + set[at..].iter().position(|&set| set)?;
        let length = set[start..].iter().position(|&set| !set);
        at = start + length.unwrap_or(set.len() - start);
        Some(start..at)
    })
}

/// A place within memory.
fn to_usize(place: u64) -> usize {
    usize::try_from(place).expect("places lie within memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_what_is_set() {
        let check = |set: &[bool], expected: &[Range<usize>]| {
            assert_eq!(runs(set).collect::<Vec<_>>(), expected);
        };
        check(&[], &[]);
        check(&[false, false], &[]);
        check(&[true, true, false, true], &[0..2, 3..4]);
        check(&[false, true, true, false, true], &[1..3, 4..5]);
    }
}
