//! Operations that end by a deadline, with the data that has arrived by then.
//!
//! In the first phase of an operation, every rank sends its contribution to every other rank in
//! best-effort messages, until the deadline ([`collect`]). No rank combines contributions on the
//! way. So a lost packet costs the contribution of one rank only, and the packets that arrived show
//! which ranks are part of a value.
//!
//! Except for all-reduces, the operation then ends. In an all-reduce, ranks exchange the reduced
//! parts and their contributors exactly, so all ranks have the same result and the same knowledge
//! of what is missing from it.
//!
//! Ranks also exchange [`record`]s of what the operation cost them. In an all-reduce, they are part
//! of the second phase. Other operations do not wait for them ([`records`]).

pub(crate) mod collect;
mod contribution;
pub(crate) mod hadamard;
pub(crate) mod learned;
mod options;
pub(crate) mod plan;
pub(crate) mod qp;
pub(crate) mod record;
pub(crate) mod records;
pub(crate) mod replay;

use std::ops::Range;

use farwrite::deadline::{Proposal, TimeoutKey, Verdict};
use farwrite::{Endpoint, Error, Fabric, SchemeName};

use self::collect::{Collect, Collected, Exchange};
use self::contribution::runs;
use self::learned::{Learned, Terms};
use self::plan::{BoundedPlan, Gather};
use self::qp::BoundedQp;
use self::record::Layout;
use crate::index::{to_range, to_usize};
use crate::report::Missing;
use crate::scratch::Scratch;

pub use self::options::{BoundedOptions, Hadamard};

/// The state that the bounded operations of a group share.
pub(crate) struct BoundedGroup<'a, F: Fabric> {
    pub(crate) endpoint: &'a mut Endpoint<F>,
    /// By rank; `None` for this rank.
    pub(crate) qps: &'a mut [Option<BoundedQp>],
    pub(crate) learned: &'a mut Learned,
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

    /// Whether the first phase has ended.
    pub(crate) fn has_collected(&self) -> bool {
        matches!(self.phase, Phase::Collected(_))
    }

    /// Whether the messages of the first phase have been handed to the queue pairs.
    pub(crate) fn is_sent(&self) -> bool {
        match &self.phase {
            Phase::Collecting(collect) => collect.is_sent(),
            phase => matches!(phase, Phase::Collected(_)),
        }
    }

    /// The time at which the first phase ends at the latest.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Collecting(collect) => collect.deadline_ns,
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

    /// The scheme that carried the contributions, and the verdict that selected it; `None` before
    /// the operation begins.
    pub(crate) fn repair(&self) -> Option<(SchemeName, Verdict)> {
        self.terms.map(|terms| (terms.scheme, terms.verdict))
    }

    fn key(&self) -> TimeoutKey {
        TimeoutKey::new(self.plan.collective, self.plan.bytes, 0)
    }

    /// The working memory, with what this rank contributes to its own result.
    pub(crate) fn prepare(&mut self, source: &[u8], scratch: &mut Scratch) -> Vec<u8> {
        self.plan.prepare(source, scratch)
    }

    /// Continues the first phase. The phase ends only if `may_end` is true. Returns whether it did
    /// anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        group: BoundedGroup<'_, F>,
        source: &[u8],
        work: &mut [u8],
        may_end: bool,
    ) -> Result<bool, Error> {
        let BoundedGroup {
            endpoint,
            qps,
            learned,
            scratch,
            now_ns,
        } = group;
        if matches!(self.phase, Phase::Waiting) {
            let terms = learned.terms(self.key(), self.plan.bytes);
            self.terms = Some(terms);
            let exchange = self.plan.exchange.clone();
            let collect = Collect::new(exchange, qps, terms, now_ns, scratch);
            self.phase = Phase::Collecting(Box::new(collect));
        }
        let Phase::Collecting(collect) = &mut self.phase else {
            return Ok(false);
        };
        let source = self.plan.encoded.as_deref().unwrap_or(source);
        let moved = collect.progress(endpoint, qps, source, work, now_ns)?;
        let is_late = collect.deadline_ns.is_some_and(|at_ns| at_ns <= now_ns);
        if !may_end || !collect.is_complete() && !is_late {
            return Ok(moved);
        }
        if let Phase::Collecting(collect) = std::mem::replace(&mut self.phase, Phase::Broken) {
            let collected = collect.finish(endpoint, qps, work, now_ns, scratch)?;
            let (key, bytes) = (self.key(), self.plan.bytes);
            let terms = self.terms.as_ref();
            let verdict = terms.map_or(Verdict::Wait, |terms| terms.verdict);
            let measured = learned.measure(endpoint, qps)?;
            let proposal = learned.propose(key, bytes, verdict, &collected, measured);
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
        }
        Ok(true)
    }

    /// Learns from the records of all ranks that are part of the operation. They must have arrived.
    pub(crate) fn settle(&self, learned: &mut Learned, work: &[u8]) {
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
        let plan = &self.plan;
        let Exchange {
            receives,
            reduction,
            rank: own,
            ..
        } = &plan.exchange;
        match (&plan.gather, reduction) {
            (Some(Gather { parts, layout }), _) => {
                let of_part = |(owner, part): (usize, &Range<u64>)| {
                    let record = self.record(work, *layout, owner);
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

    /// The same for a part that ranks have reduced. Equal neighbours are merged into one.
    fn missing_of(
        &self,
        part: &Range<u64>,
        has_arrived: impl Fn(usize, usize) -> bool,
    ) -> Vec<Missing> {
        let packets = (part.end - part.start).div_ceil(self.plan.exchange.packet_bytes);
        let mut missing: Vec<Missing> = Vec::new();
        for packet in 0..to_usize(packets) {
            let absent = |rank: &usize| !has_arrived(*rank, packet);
            let ranks: Vec<usize> = (0..self.plan.exchange.receives.len())
                .filter(absent)
                .collect();
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
