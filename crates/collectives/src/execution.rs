//! An operation in progress: which bytes of which step are done.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::{Fabric, SchemeName};
use farwrite_deadline::TimeoutKey;

use crate::bounded::measurements::GroupMeasurements;
use crate::bounded::record::{Record, Stage};
use crate::bounded::{Bounded, BoundedGroup};
use crate::buffer::{Buffer, Buffers};
use crate::element::Reduction;
use crate::error::CollectiveError;
use crate::index::{to_range, to_usize};
use crate::kernel;
use crate::mismatch::{self, Mismatch};
use crate::operation::name;
use crate::plan::Plan;
use crate::report::{Arrival, PeerReport, Report};
use crate::schedule::{Action, Step};
use crate::scratch::Scratch;
use crate::segment::{Descriptor, Header};

/// An operation that has begun.
#[derive(Debug)]
pub(crate) struct Execution {
    pub(crate) number: u64,
    pub(crate) started_ns: u64,
    pub(crate) timeout_ns: u64,
    plan: Plan,
    ranks: u32,
    buffers: Buffers,
    /// The memory that the steps work on, if it is not the output. That of a bounded operation is
    /// created when it begins.
    copy: Option<Buffer>,
    steps: Vec<StepProgress>,
    /// By rank: the ranges that remain to be sent to it and received from it.
    queues: Vec<Queues>,
    /// The number of steps that are not done.
    left: usize,
    /// The schemes of the segments that were sent.
    schemes: Vec<SchemeName>,
    /// The state of a bounded operation. Its steps begin when its first phase has ended.
    bounded: Option<Bounded>,
    /// For a receive: the rank that sends, once it is known.
    source: Option<usize>,
    /// Whether other ranks were informed that it makes progress.
    is_announced: bool,
    /// By rank: when the first and the last segment of it were processed.
    arrivals: Vec<Option<[u64; 2]>>,
}

#[derive(Debug)]
struct StepProgress {
    step: Step,
    /// Bytes from the start of the range up to here are done.
    done: u64,
    /// The indices of earlier steps that access the same bytes.
    after: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Queues {
    sends: VecDeque<usize>,
    receives: VecDeque<usize>,
}

impl Execution {
    /// An operation that begins at the first of the two times and may take as long as the second.
    /// `OrderedOperations` or `SendsAndReceives` sets its number.
    pub(crate) fn new(
        times_ns: [u64; 2],
        ranks: usize,
        mut plan: Plan,
        buffers: Buffers,
        scratch: &mut Scratch,
    ) -> Self {
        let bounded = plan.bounded.take();
        let mut execution = Self {
            number: 0,
            started_ns: times_ns[0],
            timeout_ns: times_ns[1],
            ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
            buffers,
            copy: None,
            bounded: bounded.map(|bounded| Bounded::new(*bounded)),
            source: plan
                .point
                .filter(|point| !point.is_send)
                .and_then(|point| point.peer),
            is_announced: false,
            arrivals: vec![None; ranks],
            steps: with_dependencies(&plan.steps),
            queues: vec![Queues::default(); ranks],
            left: plan.steps.len(),
            schemes: Vec::new(),
            plan,
        };
        for (index, step) in execution.plan.steps.iter().enumerate() {
            let queues = &mut execution.queues[step.peer];
            match step.action.is_send() {
                true => queues.sends.push_back(index),
                false => queues.receives.push_back(index),
            }
        }
        if execution.bounded.is_none() {
            execution.copy_before(scratch);
        }
        execution
    }

    pub(crate) fn name(&self) -> &'static str {
        name(self.plan.descriptor.operation)
    }

    /// Whether the operation is between two ranks only.
    pub(crate) fn is_point(&self) -> bool {
        self.plan.point.is_some()
    }

    /// Whether the operation receives from any rank.
    pub(crate) fn is_from_any(&self) -> bool {
        self.plan.point.is_some_and(|point| point.peer.is_none())
    }

    /// Whether the operation receives from any rank, and none is chosen yet.
    pub(crate) fn waits_for_any(&self) -> bool {
        self.is_from_any() && self.source.is_none()
    }

    /// Chooses the rank that an operation receives from.
    pub(crate) fn choose_sender(&mut self, peer: usize) {
        let whole = 0..self.plan.descriptor.bytes;
        self.source = Some(peer);
        if !whole.is_empty() {
            self.plan.steps = vec![Step::new(peer, Action::Copy, &whole)];
            self.steps = with_dependencies(&self.plan.steps);
            self.queues[peer].receives.push_back(0);
            self.left = 1;
        }
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.started_ns.saturating_add(self.timeout_ns)
    }

    fn copy_before(&mut self, scratch: &mut Scratch) {
        let Buffers { input, output } = &mut self.buffers;
        let input = input.as_ref().map_or(&[][..], Buffer::as_slice);
        if self.plan.on_copy {
            let length = to_usize(self.plan.descriptor.bytes);
            let copy = if input.is_empty() {
                scratch.take_zeroed(length)
            } else {
                let mut copy = scratch.take(input.len());
                copy.copy_from_slice(input);
                copy
            };
            self.copy = Some(copy.into());
        } else if let (Some((range, at)), Some(output)) = (&self.plan.before, output) {
            let bytes = &input[to_range(range)];
            let at = to_usize(*at);
            output.as_mut_slice()[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Whether every step is done. A bounded operation can wait for [`Self::awaits_records`] too.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.has_collected()
    }

    /// A bounded operation whose records are not part of it: which timeout learns from it, and its
    /// size in bytes.
    pub(crate) fn separate_records(&self) -> Option<(TimeoutKey, u64)> {
        let bounded = self.bounded.as_ref()?;
        bounded.has_separate_records().then(|| bounded.size())
    }

    /// Whether the operation waits for separate records of all ranks.
    pub(crate) fn awaits_records(&self) -> bool {
        let awaits = |bounded: &Bounded| bounded.has_separate_records() && bounded.awaits_records();
        self.bounded.as_ref().is_some_and(awaits)
    }

    /// The first separate record of this rank, once.
    pub(crate) fn announce(&mut self) -> Option<Record> {
        self.separate_records()?;
        let is_first = !std::mem::replace(&mut self.is_announced, true);
        is_first.then(|| self.record(Stage::Started))
    }

    /// Removes and returns the separate record of this rank, when the first phase has ended.
    pub(crate) fn take_record(&mut self) -> Option<Record> {
        let proposal = self.bounded.as_mut()?.take_proposal()?;
        Some(self.record(Stage::Ended(proposal)))
    }

    /// A separate record of this rank.
    pub(crate) fn record(&self, stage: Stage) -> Record {
        Record {
            number: self.number,
            descriptor: self.plan.descriptor,
            stage,
        }
    }

    /// Whether the operation ends by a deadline.
    pub(crate) fn is_bounded(&self) -> bool {
        self.bounded.is_some()
    }

    /// Whether the steps can begin.
    pub(crate) fn has_collected(&self) -> bool {
        self.bounded.as_ref().is_none_or(Bounded::has_collected)
    }

    /// The time at which the current phase of a bounded operation ends.
    pub(crate) fn limit_ns(&self) -> Option<u64> {
        self.bounded.as_ref().and_then(Bounded::deadline_ns)
    }

    /// The time at which the current step of a bounded operation around a ring ends.
    pub(crate) fn step_limit_ns(&self) -> Option<u64> {
        self.bounded.as_ref().and_then(Bounded::step_deadline_ns)
    }

    /// Whether a bounded operation has handed all messages with a deadline to the queue pairs.
    pub(crate) fn is_sent(&self) -> bool {
        self.bounded.as_ref().is_none_or(Bounded::is_sent)
    }

    /// Continues the phases of a bounded operation that have a deadline. The last one ends only if
    /// `may_end` is true. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn collect<F: Fabric>(
        &mut self,
        group: BoundedGroup<'_, F>,
        may_end: bool,
    ) -> Result<bool, farwrite::Error> {
        let Buffers { input, output } = &mut self.buffers;
        let source = input.as_ref().or(output.as_ref());
        let source = source.map_or(&[][..], Buffer::as_slice);
        let Some(bounded) = &mut self.bounded else {
            return Ok(false);
        };
        let prepare = || bounded.prepare(source, group.scratch).into();
        let work = self.copy.get_or_insert_with(prepare);
        bounded.progress(group, source, work.as_mut_slice(), may_end)
    }

    /// Learns from a bounded operation that is done.
    pub(crate) fn settle(&self, learned: &mut GroupMeasurements) {
        if let (Some(bounded), Some(work)) = (&self.bounded, &self.copy) {
            bounded.settle(learned, work.as_slice());
        }
    }

    /// Whether bytes are left to send to a rank.
    pub(crate) fn sends_to(&self, peer: usize) -> bool {
        !self.queues[peer].sends.is_empty()
    }

    /// Whether bytes are left to receive from a rank.
    pub(crate) fn receives_from(&self, peer: usize) -> bool {
        !self.queues[peer].receives.is_empty()
    }

    /// A rank that the operation waits for: one that it must receive bytes from, or otherwise one
    /// that it must send bytes to.
    pub(crate) fn waits_for(&self) -> Option<usize> {
        if let Some(bounded) = self
            .bounded
            .as_ref()
            .filter(|bounded| !bounded.has_collected())
        {
            return bounded.waits_for();
        }
        let receives = (0..self.queues.len()).find(|&peer| self.receives_from(peer));
        receives.or_else(|| (0..self.queues.len()).find(|&peer| self.sends_to(peer)))
    }

    /// The next segment for a rank, of at most `most` bytes; `None` until its bytes are ready.
    pub(crate) fn next_send(&self, peer: usize, most: u64) -> Option<(Header, &[u8])> {
        let index = *self.queues[peer]
            .sends
            .front()
            .filter(|_| self.has_collected())?;
        let StepProgress { step, done, .. } = &self.steps[index];
        let end = step.range.end.min(done + most);
        if self.ready_to(index) < end {
            return None;
        }
        let memory = match step.action {
            Action::SendInput => self.buffers.input.as_ref(),
            _ => self.copy.as_ref().or(self.buffers.output.as_ref()),
        };
        let bytes = memory.map_or(&[][..], Buffer::as_slice);
        let header = Header {
            number: self.number,
            offset: done - step.range.start,
            descriptor: self.descriptor(step),
        };
        Some((header, &bytes[to_range(&(*done..end))]))
    }

    /// The number of bytes of the current step that are left to send to a rank.
    pub(crate) fn left_to(&self, peer: usize) -> u64 {
        let index = self.queues[peer].sends.front();
        index.map_or(0, |&index| {
            let StepProgress { step, done, .. } = &self.steps[index];
            step.range.end - done
        })
    }

    /// Notes that the segment of [`Execution::next_send`], of `bytes` bytes, is in flight with this
    /// scheme.
    pub(crate) fn sent(&mut self, peer: usize, bytes: usize, scheme: SchemeName) {
        if !self.schemes.contains(&scheme) {
            self.schemes.push(scheme);
        }
        let index = self.queues[peer].sends[0];
        self.steps[index].done += bytes as u64;
        if self.steps[index].done == self.steps[index].step.range.end {
            self.queues[peer].sends.pop_front();
            self.left -= 1;
        }
    }

    /// Processes the next segment from a rank. Returns `false` if earlier steps still use the same
    /// bytes.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] if it is not the segment that this rank expects.
    pub(crate) fn receive(
        &mut self,
        peer: usize,
        header: &Header,
        payload: &[u8],
    ) -> Result<bool, CollectiveError> {
        let index = self.queues[peer].receives[0];
        let StepProgress { step, done, .. } = &self.steps[index];
        self.check(peer, step, *done, header, payload)?;
        let range = *done..done + payload.len() as u64;
        if self.ready_to(index) < range.end || !self.has_collected() {
            return Ok(false);
        }
        let action = step.action;
        let whole = step.range.end == range.end;
        let memory = self.copy.as_mut().or(self.buffers.output.as_mut());
        let memory = memory.map_or(&mut [][..], Buffer::as_mut_slice);
        let target = &mut memory[to_range(&range)];
        match (action, self.plan.values) {
            (Action::Reduce { last }, Some((element, reduction))) => {
                kernel::reduce(element, reduction, target, payload);
                if last && reduction == Reduction::Mean {
                    kernel::divide(element, target, self.ranks);
                }
            }
            _ => target.copy_from_slice(payload),
        }
        self.steps[index].done = range.end;
        if whole {
            self.queues[peer].receives.pop_front();
            self.left -= 1;
        }
        Ok(true)
    }

    /// Notes that a segment of a rank was processed.
    pub(crate) fn note_arrival(&mut self, peer: usize, now_ns: u64) {
        let [_, last_ns] = self.arrivals[peer].get_or_insert([now_ns; 2]);
        *last_ns = now_ns;
    }

    /// The ranks that it exchanges segments with.
    pub(crate) fn partners(&self) -> Vec<usize> {
        let mut partners: Vec<_> = self.plan.steps.iter().map(|step| step.peer).collect();
        partners.sort_unstable();
        partners.dedup();
        partners
    }

    fn arrivals(&self) -> Vec<Arrival> {
        let since = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(self.started_ns));
        let arrivals = self.arrivals.iter().enumerate();
        let arrivals = arrivals.filter_map(|(rank, times_ns)| {
            let [first, last] = (*times_ns)?.map(since);
            Some(Arrival { rank, first, last })
        });
        arrivals.collect()
    }

    /// The end of the bytes of a step that earlier steps no longer use.
    fn ready_to(&self, index: usize) -> u64 {
        let range = &self.steps[index].step.range;
        let earlier = self.steps[index].after.iter();
        let limits = earlier.map(|&earlier| {
            let earlier = &self.steps[earlier];
            match earlier.done >= earlier.step.range.end.min(range.end) {
                true => range.end,
                false => earlier.done,
            }
        });
        limits.fold(range.end, u64::min)
    }

    fn descriptor(&self, step: &Step) -> Descriptor {
        let bytes = match self.plan.per_step {
            true => step.range.end - step.range.start,
            false => self.plan.descriptor.bytes,
        };
        Descriptor {
            bytes,
            ..self.plan.descriptor
        }
    }

    fn check(
        &self,
        peer: usize,
        step: &Step,
        done: u64,
        header: &Header,
        payload: &[u8],
    ) -> Result<(), CollectiveError> {
        let expected = Header {
            number: self.number,
            offset: done - step.range.start,
            descriptor: self.descriptor(step),
        };
        let left = step.range.end - done;
        let found = mismatch::find(header, &expected, payload.len() as u64, left);
        found.map_or(
            Ok(()),
            |Mismatch {
                 argument,
                 theirs,
                 ours,
             }| {
                Err(CollectiveError::Mismatch {
                    operation: self.number,
                    rank: peer,
                    argument,
                    theirs,
                    ours,
                })
            },
        )
    }

    /// Ends an operation whose steps are done. `peers` is what was measured of its partners.
    pub(crate) fn finish(
        mut self,
        now_ns: u64,
        peers: Vec<PeerReport>,
        scratch: &mut Scratch,
    ) -> (Report, Buffers) {
        if let (Some(copy), Some(output)) = (&self.copy, &mut self.buffers.output) {
            let result = self.plan.after.clone().unwrap_or(0..0);
            let bytes = &copy.as_slice()[to_range(&result)];
            output.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        }
        let missing = match (&self.bounded, &self.copy) {
            (Some(bounded), Some(work)) => bounded.missing(work.as_slice()),
            _ => Vec::new(),
        };
        let limit_ns = self.bounded.as_ref().and_then(Bounded::timeout_ns);
        let missing_bytes = missing
            .iter()
            .map(|missing| missing.range.end - missing.range.start);
        let report = Report {
            operation: self.number,
            source: self.source,
            bytes: self.plan.bytes,
            missing_bytes: missing_bytes.sum(),
            limit: limit_ns.map(Duration::from_nanos),
            was_cut: self.bounded.as_ref().is_some_and(Bounded::was_cut),
            missing,
            arrivals: self.arrivals(),
            peers,
            schemes: self.schemes,
            repair: self.bounded.as_ref().and_then(Bounded::repair),
            elapsed: Duration::from_nanos(now_ns.saturating_sub(self.started_ns)),
            timeout: Duration::from_nanos(self.timeout_ns),
        };
        if let Some(copy) = self.copy.and_then(Buffer::into_vec) {
            scratch.give(copy);
        }
        (report, self.buffers)
    }

    /// Returns the memory of an operation that does not continue.
    pub(crate) fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

/// Finds the earlier steps that each step must wait for: those that access the same bytes, if one
/// of the two writes them.
fn with_dependencies(steps: &[Step]) -> Vec<StepProgress> {
    let conflict = |a: &Step, b: &Step| {
        let input = a.action == Action::SendInput || b.action == Action::SendInput;
        let both_read = a.action.is_send() && b.action.is_send();
        let apart = a.range.end <= b.range.start || b.range.end <= a.range.start;
        !input && !both_read && !apart
    };
    let progress = |(index, step): (usize, &Step)| StepProgress {
        step: step.clone(),
        done: step.range.start,
        after: (0..index)
            .filter(|&earlier| conflict(&steps[earlier], step))
            .collect(),
    };
    steps.iter().enumerate().map(progress).collect()
}
