//! Operations that end in time, with what has come by then.
//!
//! An operation has two phases. In the first, every rank sends to every other one what it
//! contributes, in best-effort messages, until the deadline ([`collect`]). Contributions are never
//! joined on their way, so a lost packet costs the contribution of one rank, and which ranks went
//! into a value is known from what has arrived. In the second, ranks exchange [`record`]s exactly,
//! and for an all-reduce the reduced parts too: so all ranks have the same result and know the same
//! of it.

pub(crate) mod collect;
pub(crate) mod lane;
pub(crate) mod plan;
pub(crate) mod record;

use std::ops::Range;

use farwrite::deadline::{Bounds, Key, Observation, Policy, Timeouts};
use farwrite::{Endpoint, Error, Fabric, SchemeName};

use self::collect::{Collect, Collected, Exchange, runs};
use self::lane::BoundedLane;
use self::plan::BoundedPlan;
use crate::report::Missing;

/// How bounded operations of a group work. All ranks must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedOptions {
    /// What carries contributions: one of [`SchemeName::BOUNDED`].
    pub scheme: SchemeName,
    /// How the time follows from what operations took.
    pub policy: Policy,
    /// The least and the most time.
    pub bounds: Bounds,
}

impl Default for BoundedOptions {
    /// Without repair; the least time that keeps missing bytes below 1%, from 1 ms to a minute.
    fn default() -> Self {
        Self {
            scheme: SchemeName::BestEffort,
            policy: Policy::LossTarget {
                target_ppm: 10_000,
                rtt_ns: 10_000_000,
            },
            bounds: Bounds {
                min_ns: 1_000_000,
                max_ns: 60_000_000_000,
            },
        }
    }
}

/// A bounded operation on its way.
#[derive(Debug)]
pub(crate) struct Bounded {
    plan: BoundedPlan,
    phase: Phase,
    /// How long the first phase was allowed to take.
    timeout_ns: Option<u64>,
}

#[derive(Debug)]
enum Phase {
    /// An earlier bounded operation is not over.
    Waiting,
    Collecting(Box<Collect>),
    Exchanging(Collected),
    /// An error has ended it.
    Broken,
}

impl Bounded {
    pub(crate) fn new(plan: BoundedPlan) -> Self {
        Self {
            plan,
            phase: Phase::Waiting,
            timeout_ns: None,
        }
    }

    /// Whether the first phase is over.
    pub(crate) fn has_collected(&self) -> bool {
        matches!(self.phase, Phase::Exchanging(_))
    }

    /// When the first phase ends at the latest.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Collecting(collect) => collect.deadline_ns,
            _ => None,
        }
    }

    /// How long the first phase was allowed to take; `None`: it was the warm-up.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.timeout_ns
    }

    fn key(&self) -> Key {
        Key::new(self.plan.collective, self.plan.bytes, 0)
    }

    /// Goes on with the first phase. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        lanes: &mut [Option<BoundedLane>],
        timeouts: &mut Timeouts,
        source: &[u8],
        work: &mut [u8],
        now_ns: u64,
    ) -> Result<bool, Error> {
        if matches!(self.phase, Phase::Waiting) {
            self.timeout_ns = timeouts.get_mut(self.key()).timeout_ns(self.plan.bytes);
            let exchange = self.plan.exchange.clone();
            let collect = Collect::new(exchange, now_ns, self.timeout_ns);
            self.phase = Phase::Collecting(Box::new(collect));
        }
        let Phase::Collecting(collect) = &mut self.phase else {
            return Ok(false);
        };
        let moved = collect.progress(endpoint, lanes, source, work)?;
        let is_late = collect.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !collect.is_complete() && !is_late {
            return Ok(moved);
        }
        if let Phase::Collecting(collect) = std::mem::replace(&mut self.phase, Phase::Broken) {
            let elapsed_ns = now_ns.saturating_sub(collect.started_ns);
            let collected = collect.finish(endpoint, lanes, work)?;
            self.write_record(&collected, elapsed_ns, lanes, timeouts, work);
            self.phase = Phase::Exchanging(collected);
        }
        Ok(true)
    }

    /// Writes what this rank says to the others.
    fn write_record(
        &self,
        collected: &Collected,
        elapsed_ns: u64,
        lanes: &[Option<BoundedLane>],
        timeouts: &mut Timeouts,
        work: &mut [u8],
    ) {
        let expected_bytes = collected.expected_bytes;
        let dropped = u128::from(collected.dropped_bytes) * 1_000_000;
        let path_loss = dropped.checked_div(expected_bytes.into()).unwrap_or(0);
        let proposal = timeouts.get_mut(self.key()).propose(&Observation {
            elapsed_ns,
            received_bytes: collected.received_bytes,
            expected_bytes,
            timed_out: collected.timed_out,
            path_loss_ppm: u32::try_from(path_loss).unwrap_or(u32::MAX),
        });
        let range = self.plan.record(self.plan.exchange.rank);
        let record = &mut work[to_usize(range.start)..to_usize(range.end)];
        let sent = lanes
            .iter()
            .map(|lane| lane.as_ref().map_or(0, BoundedLane::sent));
        let has_arrived = |rank: usize, packet: usize| {
            let arrived: &Vec<bool> = &collected.arrived[rank];
            arrived.get(packet).copied().unwrap_or(false)
        };
        self.plan.layout.write(record, proposal, sent, has_arrived);
    }

    /// Learns from the records of all ranks, which have come.
    pub(crate) fn settle(
        &self,
        lanes: &mut [Option<BoundedLane>],
        timeouts: &mut Timeouts,
        work: &[u8],
    ) {
        let layout = self.plan.layout;
        let records = (0..layout.ranks).map(|rank| self.record(work, rank));
        let proposals: Vec<_> = records.map(|record| layout.proposal(record)).collect();
        timeouts
            .get_mut(self.key())
            .agree(self.plan.bytes, &proposals);
        for (rank, lane) in lanes.iter_mut().enumerate() {
            if let Some(lane) = lane {
                let sent = layout.sent(self.record(work, rank), self.plan.exchange.rank);
                lane.set_current(sent);
            }
        }
    }

    fn record<'a>(&self, work: &'a [u8], rank: usize) -> &'a [u8] {
        let range = self.plan.record(rank);
        &work[to_usize(range.start)..to_usize(range.end)]
    }

    /// Which bytes of the result lack contributions of which ranks.
    pub(crate) fn missing(&self, work: &[u8]) -> Vec<Missing> {
        let Phase::Exchanging(collected) = &self.phase else {
            return Vec::new();
        };
        let (plan, layout) = (&self.plan, self.plan.layout);
        let Exchange {
            receives,
            reduction,
            rank: own,
            ..
        } = &plan.exchange;
        match (&plan.parts, reduction) {
            (Some(parts), _) => {
                let of_part = |(owner, part): (usize, &Range<u64>)| {
                    let record = self.record(work, owner);
                    self.missing_of(part, |from, packet| {
                        layout.has_arrived(record, from, packet)
                    })
                };
                parts.iter().enumerate().flat_map(of_part).collect()
            }
            (None, Some(_)) => self.missing_of(&receives[*own], |from, packet| {
                collected.arrived[from][packet]
            }),
            (None, None) => {
                let of_peer = |(peer, range): (usize, &Range<u64>)| {
                    let absent: Vec<bool> =
                        collected.arrived[peer].iter().map(|set| !set).collect();
                    let run = |run| Missing {
                        range: self.bytes_of(range, &run),
                        ranks: vec![peer],
                    };
                    runs(&absent).map(run).collect::<Vec<_>>()
                };
                receives.iter().enumerate().flat_map(of_peer).collect()
            }
        }
    }

    /// The same of a part that ranks have reduced, in which equal neighbours are one.
    fn missing_of(
        &self,
        part: &Range<u64>,
        has_arrived: impl Fn(usize, usize) -> bool,
    ) -> Vec<Missing> {
        let packets = (part.end - part.start).div_ceil(self.plan.exchange.packet_bytes);
        let mut missing: Vec<Missing> = Vec::new();
        for packet in 0..to_usize(packets) {
            let absent = |rank: &usize| !has_arrived(*rank, packet);
            let ranks: Vec<usize> = (0..self.plan.layout.ranks).filter(absent).collect();
            if ranks.is_empty() {
                continue;
            }
            let range = self.bytes_of(part, &(packet..packet + 1));
            match missing.last_mut() {
                Some(last) if last.range.end == range.start && last.ranks == ranks => {
                    last.range.end = range.end;
                }
                _ => missing.push(Missing { range, ranks }),
            }
        }
        missing
    }

    /// The bytes of a run of packets.
    fn bytes_of(&self, range: &Range<u64>, run: &Range<usize>) -> Range<u64> {
        let packet_bytes = self.plan.exchange.packet_bytes;
        let end = range.start + run.end as u64 * packet_bytes;
        range.start + run.start as u64 * packet_bytes..end.min(range.end)
    }
}

/// A place within memory.
fn to_usize(place: u64) -> usize {
    usize::try_from(place).expect("places lie within memory")
}
