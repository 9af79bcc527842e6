//! The part of a bounded operation that has a deadline. Every rank sends its contribution to every
//! other rank and uses what arrives in time.

use std::ops::Range;

use farwrite::{Endpoint, Error, Fabric, SchemeTag};

use super::contribution::{Contribution, runs};
use super::exchange::Exchange;
use super::qp::{Arrival, BoundedQp};
use crate::index::{to_range, to_usize};
use crate::report::Missing;
use crate::scratch::Scratch;

/// An exchange in progress.
#[derive(Debug)]
pub(crate) struct Collect {
    exchange: Exchange,
    /// By rank: bytes of the source that are not sent yet.
    outgoing: Vec<Range<u64>>,
    incoming: Vec<Incoming>,
    /// The scheme that carries messages to other ranks.
    scheme: SchemeTag,
    started_ns: u64,
    /// The time at which everything had arrived. Earlier operations can keep a complete exchange
    /// from ending.
    completed_ns: Option<u64>,
    /// The time at which the exchange ends at the latest.
    pub(crate) deadline_ns: Option<u64>,
}

/// What arrives from one rank.
#[derive(Debug)]
struct Incoming {
    contribution: Contribution,
    /// The number of its first message.
    first: u64,
    /// The number of messages that have been processed.
    segments: u64,
}

/// The result of an exchange.
#[derive(Debug)]
pub(crate) struct Collected {
    /// By rank and packet: whether the packet has arrived.
    pub(crate) arrived: Vec<Vec<bool>>,
    /// The time from the start until everything had arrived, or until the deadline.
    pub(crate) elapsed_ns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) expected_bytes: u64,
    pub(crate) timed_out: bool,
    /// What the result lacks; `None` if it follows from `arrived`.
    pub(crate) missing: Option<Vec<Missing>>,
}

/// The times of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The time from which its duration counts.
    pub(crate) started_ns: u64,
    /// The time at which it ends at the latest.
    pub(crate) deadline_ns: Option<u64>,
}

impl Collected {
    /// Whether the deadline ended the exchange before everything had arrived at this rank, as
    /// [`CutCounts::cut`](farwrite_deadline::CutCounts::cut) counts it.
    pub(crate) fn was_cut(&self) -> bool {
        self.timed_out && self.received_bytes < self.expected_bytes
    }
}

impl Collect {
    /// Begins the exchange: the queue pairs expect the messages of this operation.
    pub(crate) fn new(
        exchange: Exchange,
        qps: &mut [Option<BoundedQp>],
        scheme: SchemeTag,
        times: Times,
        scratch: &mut Scratch,
    ) -> Self {
        let incoming = exchange.receives.iter().enumerate().map(|(rank, range)| {
            let is_own = rank == exchange.rank;
            Incoming {
                contribution: Contribution::new(&exchange, rank, scratch),
                first: qps[rank]
                    .as_mut()
                    .map_or(0, |qp| qp.begin(exchange.segments_of(range))),
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
            scheme,
            started_ns: times.started_ns,
            completed_ns: None,
            deadline_ns: times.deadline_ns,
        }
    }

    /// Sends and receives as much as possible now. The queue pairs must have been tended in this
    /// poll. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        source: &[u8],
        work: &mut [u8],
        now_ns: u64,
    ) -> Result<bool, Error> {
        let mut moved = false;
        for (peer, qp) in qps.iter_mut().enumerate() {
            let Some(qp) = qp else {
                continue;
            };
            moved |= self.send(endpoint, qp, peer, source)?;
            while self.take_next(endpoint, qp, peer, work)? {
                qp.release();
                moved = true;
            }
            moved |= qp.tend(endpoint, now_ns)?;
        }
        if self.completed_ns.is_none() && self.is_complete() {
            self.completed_ns = Some(now_ns);
        }
        Ok(moved)
    }

    /// Processes the next message of a rank if that message has ended.
    fn take_next<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        qp: &BoundedQp,
        peer: usize,
        work: &mut [u8],
    ) -> Result<bool, Error> {
        let Incoming {
            first, segments, ..
        } = self.incoming[peer];
        if self.has_all_from(peer) {
            return Ok(false);
        }
        let front = qp.arrivals().next();
        let is_next = |(number, arrival): &(u64, Arrival<'_>)| {
            *number == first + segments && arrival.is_over()
        };
        let Some((_, arrival)) = front.filter(is_next) else {
            return Ok(false);
        };
        self.take(endpoint, peer, segments, &arrival, work)?;
        self.incoming[peer].segments += 1;
        Ok(true)
    }

    /// Whether all messages have been handed to the queue pairs.
    pub(crate) fn is_sent(&self) -> bool {
        self.outgoing.iter().all(Range::is_empty)
    }

    /// Whether all messages have been sent and every incoming message has ended.
    pub(crate) fn is_complete(&self) -> bool {
        let mut peers = 0..self.incoming.len();
        self.is_sent() && peers.all(|peer| self.has_all_from(peer))
    }

    /// A rank whose messages have not all ended, or otherwise one to which messages must be sent.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        let receives = (0..self.incoming.len()).find(|&peer| !self.has_all_from(peer));
        receives.or_else(|| self.outgoing.iter().position(|left| !left.is_empty()))
    }

    /// Whether the exchange can end: it is complete, or its deadline has passed.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        self.is_complete() || self.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns)
    }

    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    fn has_all_from(&self, peer: usize) -> bool {
        self.incoming[peer].segments >= self.segments_from(peer)
    }

    /// Ends the exchange, complete or not. Copies the packets that have arrived of messages that
    /// have not ended, and reduces.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn finish<F: Fabric>(
        mut self,
        endpoint: &Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        work: &mut [u8],
        now_ns: u64,
        scratch: &mut Scratch,
    ) -> Result<Collected, Error> {
        let timed_out = !self.is_complete();
        let ended_ns = self.completed_ns.or(self.deadline_ns).unwrap_or(now_ns);
        for (peer, qp) in qps.iter_mut().enumerate() {
            let Some(qp) = qp else {
                continue;
            };
            let Incoming {
                first, segments, ..
            } = self.incoming[peer];
            let all = self.segments_from(peer);
            for (number, arrival) in qp.arrivals() {
                let segment = number.checked_sub(first);
                if let Some(segment) = segment.filter(|at| (segments..all).contains(at)) {
                    self.take(endpoint, peer, segment, &arrival, work)?;
                }
            }
            qp.end(first + all, self.exchange.segments_of(&self.outgoing[peer]));
        }
        let incoming = self.incoming.iter_mut();
        let mut contributions: Vec<_> = incoming.map(|from| &mut from.contribution).collect();
        self.exchange.reduce(&mut contributions, work);
        let expected = self.exchange.receives.iter().enumerate();
        let expected = expected.filter(|(peer, _)| *peer != self.exchange.rank);
        let expected_bytes = expected.map(|(_, range)| range.end - range.start).sum();
        let missing_bytes = self.missing_bytes();
        let mut arrived = Vec::new();
        for Incoming { contribution, .. } in self.incoming {
            arrived.push(contribution.arrived);
            scratch.give(contribution.staged);
        }
        Ok(Collected {
            arrived,
            elapsed_ns: ended_ns.saturating_sub(self.started_ns),
            received_bytes: expected_bytes - missing_bytes,
            expected_bytes,
            timed_out,
            missing: None,
        })
    }

    /// Sends messages to a rank while it has free buffers.
    fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qp: &mut BoundedQp,
        peer: usize,
        source: &[u8],
    ) -> Result<bool, Error> {
        let mut moved = false;
        while !self.outgoing[peer].is_empty() {
            let Range { start, end } = self.outgoing[peer];
            let end = end.min(start + self.exchange.segment_bytes);
            let payload = &source[to_usize(start)..to_usize(end)];
            if !qp.send(endpoint, payload, self.scheme, self.deadline_ns)? {
                break;
            }
            self.outgoing[peer].start = end;
            moved = true;
        }
        Ok(moved)
    }

    fn segments_from(&self, peer: usize) -> u64 {
        self.exchange.segments_of(&self.exchange.receives[peer])
    }

    /// Copies the packets of a message that have arrived to their place in memory.
    fn take<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        peer: usize,
        segment: u64,
        arrival: &Arrival<'_>,
        work: &mut [u8],
    ) -> Result<(), Error> {
        let Exchange {
            packet_bytes,
            segment_bytes,
            ..
        } = self.exchange;
        let range = self.exchange.receives[peer].clone();
        let first = segment * segment_bytes;
        let bytes = segment_bytes.min(range.end - range.start - first);
        let arrived = arrival.packets(to_usize(bytes.div_ceil(packet_bytes)), packet_bytes);
        let contribution = &mut self.incoming[peer].contribution;
        let target = match self.exchange.reduction {
            Some(_) => &mut contribution.staged[..],
            None => &mut work[to_range(&range)],
        };
        for run in runs(&arrived) {
            let start = run.start as u64 * packet_bytes;
            let end = bytes.min(run.end as u64 * packet_bytes);
            let target = &mut target[to_usize(first + start)..to_usize(first + end)];
            arrival.read(endpoint, start, target)?;
        }
        let first = to_usize(first / packet_bytes);
        contribution.arrived[first..first + arrived.len()].copy_from_slice(&arrived);
        Ok(())
    }

    /// The number of bytes that have not arrived.
    fn missing_bytes(&self) -> u64 {
        let packet_bytes = self.exchange.packet_bytes;
        let of_peer = |(incoming, range): (&Incoming, &Range<u64>)| {
            let bytes = range.end - range.start;
            let starts = (0_u64..).map(|i| i * packet_bytes);
            let packets = incoming.contribution.arrived.iter().zip(starts);
            let missing = packets.filter(|(arrived, start)| !**arrived && *start < bytes);
            missing
                .map(|(_, start)| packet_bytes.min(bytes - start))
                .sum::<u64>()
        };
        let peers = self.incoming.iter().zip(&self.exchange.receives);
        peers.map(of_peer).sum()
    }
}
