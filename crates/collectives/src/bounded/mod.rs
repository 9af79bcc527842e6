//! Operations that end by a deadline, with the data that has arrived by then.
//!
//! In the first phase of an operation, every rank sends its contribution to every other rank in
//! best-effort messages, until the deadline ([`collect`]). No rank combines contributions on the
//! way. So a lost packet costs the contribution of one rank only, and the packets that arrived show
//! which ranks are part of a value.
//!
//! Except for all-reduces, the operation then ends. In an all-reduce, ranks exchange the reduced
//! parts and their contributors exactly, so all ranks have the same result and the same knowledge
//! of what is missing from it. With [`BoundedOptions::parts`], they do this in best-effort messages,
//! until a second deadline ([`shares`]).
//!
//! With [`BoundedOptions::algorithm`], the phases of an all-reduce that have deadlines run around a
//! [`ring`] ([`ring_run`]). Its ranks combine contributions on the way, and each packet has the number
//! of contributions in it.
//!
//! Ranks also exchange [`record`]s of what the operation cost them. In an all-reduce with exact
//! parts, they are part of the second phase. Other operations do not wait for them ([`open_records`]).

pub(crate) mod collect;
mod contribution;
mod exchange;
pub(crate) mod frames;
pub(crate) mod hadamard;
pub(crate) mod measurements;
mod missing_ranges;
pub(crate) mod open_records;
mod options;
pub(crate) mod plan;
pub(crate) mod qp;
pub(crate) mod record;
pub(crate) mod replay;
mod ring;
mod ring_run;
mod shares;
mod step_times;

use std::ops::Range;

use farwrite::{Endpoint, Error, Fabric, SchemeName};
use farwrite_deadline::{Proposal, RepairChoice, TimeoutKey, phase_ends_ns};

use self::collect::{Collect, Collected, Times};
use self::contribution::runs;
use self::exchange::Exchange;
use self::measurements::{GroupMeasurements, Terms};
use self::missing_ranges::MissingRanges;
use self::plan::{BoundedPlan, Gather};
use self::qp::BoundedQp;
use self::record::Layout;
use self::ring_run::RingRun;
use self::shares::{Shares, Sharing};
use crate::index::to_range;
use crate::report::Missing;
use crate::scratch::Scratch;

pub use self::options::{BoundedOptions, Hadamard};

/// The state that the bounded operations of a group share.
pub(crate) struct BoundedGroup<'a, F: Fabric> {
    pub(crate) endpoint: &'a mut Endpoint<F>,
    /// By rank; `None` for this rank.
    pub(crate) qps: &'a mut [Option<BoundedQp>],
    pub(crate) learned: &'a mut GroupMeasurements,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) now_ns: u64,
}

/// A bounded operation in progress.
#[derive(Debug)]
pub(crate) struct Bounded {
    plan: BoundedPlan,
    phase: Phase,
    /// How it runs; `None` before it begins.
    terms: Option<Terms>,
    /// What this rank proposes after the first phase, until its record is sent.
    proposal: Option<Option<Proposal>>,
}

#[derive(Debug)]
enum Phase {
    /// An earlier bounded operation has not sent all of its messages.
    Waiting,
    Collecting(Box<Collect>),
    Sharing(Box<Sharing>),
    /// Both phases around a ring, or the first one of them.
    Ring(Box<RingRun>),
    /// The first phase has ended.
    Collected(Collected),
    /// An error has ended the operation.
    Broken,
}

impl Bounded {
    pub(crate) fn new(plan: BoundedPlan) -> Self {
        Self {
            plan,
            phase: Phase::Waiting,
            terms: None,
            proposal: None,
        }
    }

    /// Whether records of other ranks do not belong to the operation itself.
    pub(crate) fn has_separate_records(&self) -> bool {
        self.plan.gather.is_none()
    }

    /// Whether the operation waits for the records of all ranks: it has no deadline. So all ranks
    /// take part in the first operation of a kind and size, and compare what they run.
    pub(crate) fn awaits_records(&self) -> bool {
        self.timeout_ns().is_none()
    }

    /// Removes and returns the proposal for a separate record, after the first phase. It is `None`
    /// in the record of a rank that expected no data.
    pub(crate) fn take_proposal(&mut self) -> Option<Option<Proposal>> {
        self.proposal.take()
    }

    /// Which timeout learns from the operation, and its size in bytes.
    pub(crate) fn size(&self) -> (TimeoutKey, u64) {
        (self.key(), self.plan.bytes)
    }

    /// Whether all phases with a deadline have ended.
    pub(crate) fn has_collected(&self) -> bool {
        matches!(self.phase, Phase::Collected(_))
    }

    /// Whether all messages with a deadline have been handed to the queue pairs.
    pub(crate) fn is_sent(&self) -> bool {
        match &self.phase {
            Phase::Collecting(collect) => self.plan.shares.is_none() && collect.is_sent(),
            Phase::Sharing(sharing) => sharing.is_sent(),
            Phase::Ring(run) => run.is_sent(),
            phase => matches!(phase, Phase::Collected(_)),
        }
    }

    /// A rank that the current phase waits for: one whose messages have not all ended, or otherwise
    /// one that this rank must send messages to.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        match &self.phase {
            Phase::Collecting(collect) => collect.waits_for(),
            Phase::Sharing(sharing) => sharing.waits_for(),
            Phase::Ring(run) => run.waits_for(),
            _ => None,
        }
    }

    /// The time at which the current phase ends at the latest.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Collecting(collect) => collect.deadline_ns,
            Phase::Sharing(sharing) => sharing.deadline_ns(),
            _ => self.step_deadline_ns(),
        }
    }

    /// The time at which the current step around a ring ends, even if earlier operations have not
    /// ended.
    pub(crate) fn step_deadline_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Ring(run) => run.deadline_ns(),
            _ => None,
        }
    }

    /// How long the first phase was allowed to take; `None` for the warm-up.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.terms?.timeout_ns
    }

    /// Whether the deadline ended the first phase before everything had arrived at this rank.
    pub(crate) fn was_cut(&self) -> bool {
        match &self.phase {
            Phase::Collected(collected) => collected.was_cut(),
            _ => false,
        }
    }

    /// The scheme that carried the contributions, and the choice of repair that selected it; `None` before
    /// the operation begins.
    pub(crate) fn repair(&self) -> Option<(SchemeName, RepairChoice)> {
        self.terms.map(|terms| (terms.scheme, terms.repair_choice))
    }

    fn key(&self) -> TimeoutKey {
        TimeoutKey::new(self.plan.collective, self.plan.bytes, 0)
    }

    /// The working memory, with what this rank contributes to its own result.
    pub(crate) fn prepare(&mut self, source: &[u8], scratch: &mut Scratch) -> Vec<u8> {
        self.plan.prepare(source, scratch)
    }

    /// Continues the phases that have a deadline. The last one ends only if `may_end` is true.
    /// Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        mut group: BoundedGroup<'_, F>,
        source: &[u8],
        work: &mut [u8],
        may_end: bool,
    ) -> Result<bool, Error> {
        if matches!(self.phase, Phase::Waiting) {
            self.begin(&mut group);
        }
        let mut moved = self.progress_first(&mut group, source, work, may_end)?;
        if let Phase::Ring(run) = &mut self.phase {
            moved |= run.progress(group.endpoint, group.qps, work, group.now_ns)?;
            if may_end && run.is_complete() {
                self.end_ring(&mut group, source, work)?;
                moved = true;
            }
        }
        if let Phase::Sharing(sharing) = &mut self.phase {
            let now_ns = group.now_ns;
            moved |= sharing.progress(group.endpoint, group.qps, now_ns)?;
            if may_end && sharing.is_over(now_ns) {
                self.end_sharing(&mut group, source, work)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn begin<F: Fabric>(&mut self, group: &mut BoundedGroup<'_, F>) {
        let terms = group.learned.terms(self.key(), self.plan.bytes);
        self.terms = Some(terms);
        if let Some(ring) = &self.plan.ring {
            let times = group.learned.step_times(self.key());
            let ends_ns = terms
                .timeout_ns
                .map(|ns| times.deadlines_ns(ns, self.plan.bytes, ring.steps()));
            let times = (group.now_ns, ends_ns.unwrap_or_default());
            let run = RingRun::new(ring, group.qps, terms.scheme.tag(), times, group.scratch);
            self.phase = Phase::Ring(Box::new(run));
            return;
        }
        let exchange = self.plan.exchange.clone();
        let times = self.times(group.now_ns, 0);
        let scheme = terms.scheme.tag();
        let collect = Collect::new(exchange, group.qps, scheme, times, group.scratch);
        self.phase = Phase::Collecting(Box::new(collect));
    }

    /// The times of a phase of an operation that began at `started_ns`. If there are two phases,
    /// they share the time of the operation.
    fn times(&self, started_ns: u64, phase: usize) -> Times {
        let end_ns = self.timeout_ns().map(|timeout_ns| {
            let weights = self.plan.shares.as_ref().map(Shares::weights);
            let weights = weights.as_ref().map_or(&[1][..], |both| &both[..]);
            let mut ends = phase_ends_ns(timeout_ns, weights);
            ends.nth(phase).unwrap_or(timeout_ns)
        });
        Times {
            started_ns,
            deadline_ns: end_ns.map(|ns| started_ns.saturating_add(ns)),
        }
    }

    /// Continues the first phase, and begins the next one when it has ended.
    fn progress_first<F: Fabric>(
        &mut self,
        group: &mut BoundedGroup<'_, F>,
        source: &[u8],
        work: &mut [u8],
        may_end: bool,
    ) -> Result<bool, Error> {
        let now_ns = group.now_ns;
        let Phase::Collecting(collect) = &mut self.phase else {
            return Ok(false);
        };
        let source = self.plan.encoded.as_deref().unwrap_or(source);
        let moved = collect.progress(group.endpoint, group.qps, source, work, now_ns)?;
        if !may_end || !collect.is_over(now_ns) {
            return Ok(moved);
        }
        let started_ns = collect.started_ns();
        if let Phase::Collecting(collect) = std::mem::replace(&mut self.phase, Phase::Broken) {
            let (endpoint, qps) = (&*group.endpoint, &mut *group.qps);
            let collected = collect.finish(endpoint, qps, work, now_ns, group.scratch)?;
            let times = self.times(started_ns, 1);
            let scheme = self.terms.map_or(SchemeName::BestEffort, |t| t.scheme);
            match &self.plan.shares {
                None => {
                    self.plan.exchange.decode(work);
                    self.end(group, collected, work)?;
                }
                Some(shares) => {
                    let carrier = (&mut *group.qps, scheme.tag());
                    let exchange = &self.plan.exchange;
                    let scratch = &mut *group.scratch;
                    let sharing = shares.begin(exchange, collected, carrier, work, times, scratch);
                    self.phase = Phase::Sharing(Box::new(sharing));
                }
            }
        }
        Ok(true)
    }

    fn end_sharing<F: Fabric>(
        &mut self,
        group: &mut BoundedGroup<'_, F>,
        source: &[u8],
        work: &mut [u8],
    ) -> Result<(), Error> {
        let phase = std::mem::replace(&mut self.phase, Phase::Broken);
        if let (Phase::Sharing(sharing), Some(shares)) = (phase, &self.plan.shares) {
            let (endpoint, qps) = (&*group.endpoint, &mut *group.qps);
            let source = self.plan.encoded.as_deref().unwrap_or(source);
            let (memory, now_ns) = ((source, &mut *work), group.now_ns);
            let collected = sharing.finish(
                (shares, &self.plan.exchange),
                endpoint,
                qps,
                memory,
                now_ns,
                group.scratch,
            )?;
            self.end(group, collected, work)?;
        }
        Ok(())
    }

    fn end_ring<F: Fabric>(
        &mut self,
        group: &mut BoundedGroup<'_, F>,
        source: &[u8],
        work: &mut [u8],
    ) -> Result<(), Error> {
        if let Phase::Ring(run) = std::mem::replace(&mut self.phase, Phase::Broken) {
            let (key, bytes) = self.size();
            if let Some(ends_ns) = run.step_ends_ns() {
                group.learned.step_times(key).note_ends(ends_ns, bytes);
            }
            let source = self.plan.encoded.as_deref().unwrap_or(source);
            let collected = run.finish((source, &mut *work), group.scratch);
            self.end(group, collected, work)?;
        }
        Ok(())
    }

    /// Ends the phases that have a deadline: makes the record of this rank.
    fn end<F: Fabric>(
        &mut self,
        group: &mut BoundedGroup<'_, F>,
        collected: Collected,
        work: &mut [u8],
    ) -> Result<(), Error> {
        let (key, bytes) = (self.key(), self.plan.bytes);
        let measured = group.learned.measure(group.endpoint, group.qps)?;
        let measured = match &self.plan.ring {
            // What is missing there may have been cut at another rank.
            Some(ring) => measured.over_steps(ring.ranks()),
            None => measured.and_missing(&collected, self.timeout_ns()),
        };
        let learned = &mut *group.learned;
        let proposal = learned.propose(key, bytes, self.terms, &collected, measured);
        match &self.plan.gather {
            Some(gather) => {
                let range = self.plan.record(gather.layout, self.plan.exchange.rank);
                let has_arrived = |rank: usize, packet: usize| {
                    let arrived: &Vec<bool> = &collected.arrived[rank];
                    arrived.get(packet).copied().unwrap_or(false)
                };
                let record = &mut work[to_range(&range)];
                gather.layout.write(record, proposal, has_arrived);
            }
            None => self.proposal = Some(proposal),
        }
        self.plan.encoded = None;
        self.phase = Phase::Collected(collected);
        Ok(())
    }

    /// Learns from the records of all ranks that are part of the operation. They must have arrived.
    pub(crate) fn settle(&self, learned: &mut GroupMeasurements, work: &[u8]) {
        let Some(Gather { layout, .. }) = &self.plan.gather else {
            return;
        };
        let records = (0..layout.ranks).map(|rank| self.record(work, *layout, rank));
        let proposals = records.filter_map(|record| layout.proposal(record));
        let proposals: Vec<_> = proposals.collect();
        learned.agree(self.key(), self.plan.bytes, &proposals);
    }

    fn record<'a>(&self, work: &'a [u8], layout: Layout, rank: usize) -> &'a [u8] {
        let range = self.plan.record(layout, rank);
        &work[to_range(&range)]
    }

    /// The bytes of the result that lack contributions, and the ranks that they lack.
    pub(crate) fn missing(&self, work: &[u8]) -> Vec<Missing> {
        let Phase::Collected(collected) = &self.phase else {
            return Vec::new();
        };
        if let Some(missing) = &collected.missing {
            return missing.clone();
        }
        let Exchange {
            receives,
            reduction,
            rank: own,
            packet_bytes,
            ..
        } = &self.plan.exchange;
        let mut lacks = MissingRanges::default();
        match (&self.plan.gather, reduction) {
            (
                Some(Gather {
                    parts,
                    layout,
                    packet_bytes,
                }),
                _,
            ) => {
                for (owner, part) in parts.iter().enumerate() {
                    let record = self.record(work, *layout, owner);
                    let has_arrived = |from, packet| layout.has_arrived(record, from, packet);
                    lacks.add_packets(part, *packet_bytes, receives.len(), has_arrived);
                }
            }
            (None, Some(_)) => {
                let has_arrived = |from: usize, packet: usize| collected.arrived[from][packet];
                lacks.add_packets(&receives[*own], *packet_bytes, receives.len(), has_arrived);
            }
            (None, None) => {
                for (peer, range) in receives.iter().enumerate() {
                    let arrived = &collected.arrived[peer];
                    let absent: Vec<bool> = arrived.iter().map(|set| !set).collect();
                    for run in runs(&absent) {
                        lacks.add(self.bytes_of(range, &run), vec![peer]);
                    }
                }
            }
        }
        lacks.into_missing()
    }

    /// The bytes of a run of packets.
    fn bytes_of(&self, range: &Range<u64>, run: &Range<usize>) -> Range<u64> {
        let packet_bytes = self.plan.exchange.packet_bytes;
        let end = range.start + run.end as u64 * packet_bytes;
        range.start + run.start as u64 * packet_bytes..end.min(range.end)
    }
}
