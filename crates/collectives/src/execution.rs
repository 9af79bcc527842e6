//! An operation on its way: which bytes of which step are done.

use std::collections::VecDeque;
use std::ops::Range;

use farwrite::deadline::Timeouts;
use farwrite::{Endpoint, Fabric};

use crate::bounded::Bounded;
use crate::bounded::lane::BoundedLane;
use crate::buffer::{Buffer, Buffers};
use crate::element::{ElementType, Reduction};
use crate::error::CollectiveError;
use crate::kernel;
use crate::operation::{Algorithm, name};
use crate::plan::Plan;
use crate::report::Report;
use crate::schedule::{Action, Step};
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
    /// What the steps work on, where that is not the output.
    copy: Option<Buffer>,
    steps: Vec<StepProgress>,
    /// By rank: what is left to send to it and to receive from it.
    queues: Vec<Queues>,
    /// Steps that are not done.
    left: usize,
    /// Of a bounded operation, whose steps begin when its first phase is over.
    bounded: Option<Bounded>,
}

#[derive(Debug)]
struct StepProgress {
    step: Step,
    /// Bytes from the start of the range up to here are done.
    done: u64,
    /// Earlier steps that touch the same bytes.
    after: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Queues {
    sends: VecDeque<usize>,
    receives: VecDeque<usize>,
}

impl Execution {
    /// An operation that begins at the first of two times and may take the second. `OrderedOperations` or
    /// `SendsAndReceives` sets its number.
    pub(crate) fn new(times_ns: [u64; 2], ranks: usize, mut plan: Plan, buffers: Buffers) -> Self {
        let bounded = plan.bounded.take();
        let working_memory = bounded.as_ref().map(|bounded| {
            let source = buffers.input.as_ref().or(buffers.output.as_ref());
            bounded.working_memory(source.map_or(&[][..], Buffer::as_slice))
        });
        let mut execution = Self {
            number: 0,
            started_ns: times_ns[0],
            timeout_ns: times_ns[1],
            ranks: u32::try_from(ranks).unwrap_or(u32::MAX),
            buffers,
            copy: working_memory.map(Buffer::from),
            bounded: bounded.map(|bounded| Bounded::new(*bounded)),
            steps: with_dependencies(&plan.steps),
            queues: vec![Queues::default(); ranks],
            left: plan.steps.len(),
            plan,
        };
        for (index, step) in execution.plan.steps.iter().enumerate() {
            let queues = &mut execution.queues[step.peer];
            match step.action.is_send() {
                true => queues.sends.push_back(index),
                false => queues.receives.push_back(index),
            }
        }
        execution.copy_before();
        execution
    }

    pub(crate) fn name(&self) -> &'static str {
        name(self.plan.descriptor.operation)
    }

    /// Whether it is between two ranks.
    pub(crate) fn is_point(&self) -> bool {
        self.plan.point.is_some()
    }

    pub(crate) fn deadline_ns(&self) -> u64 {
        self.started_ns.saturating_add(self.timeout_ns)
    }

    fn copy_before(&mut self) {
        let Buffers { input, output } = &mut self.buffers;
        let input = input.as_ref().map_or(&[][..], Buffer::as_slice);
        if self.copy.is_some() {
            return;
        }
        if self.plan.on_copy {
            let length = usize_of(self.plan.descriptor.bytes);
            let copy = if input.is_empty() {
                vec![0; length]
            } else {
                input.to_vec()
            };
            self.copy = Some(copy.into());
        } else if let (Some((range, at)), Some(output)) = (&self.plan.before, output) {
            let bytes = &input[slice(range)];
            let at = usize_of(*at);
            output.as_mut_slice()[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Whether every step is done.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && self.has_collected()
    }

    /// Whether the operation ends in time.
    pub(crate) fn is_bounded(&self) -> bool {
        self.bounded.is_some()
    }

    /// Whether the steps can begin.
    fn has_collected(&self) -> bool {
        self.bounded.as_ref().is_none_or(Bounded::has_collected)
    }

    /// When the first phase of a bounded operation ends.
    pub(crate) fn limit_ns(&self) -> Option<u64> {
        self.bounded.as_ref().and_then(Bounded::deadline_ns)
    }

    /// Goes on with the first phase of a bounded operation. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn collect<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        lanes: &mut [Option<BoundedLane>],
        timeouts: &mut Timeouts,
        now_ns: u64,
    ) -> Result<bool, farwrite::Error> {
        let Buffers { input, output } = &mut self.buffers;
        let source = input.as_ref().or(output.as_ref());
        let source = source.map_or(&[][..], Buffer::as_slice);
        let (Some(bounded), Some(work)) = (&mut self.bounded, &mut self.copy) else {
            return Ok(false);
        };
        bounded.progress(
            endpoint,
            lanes,
            timeouts,
            source,
            work.as_mut_slice(),
            now_ns,
        )
    }

    /// Learns from a bounded operation that is done.
    pub(crate) fn settle(&self, lanes: &mut [Option<BoundedLane>], timeouts: &mut Timeouts) {
        if let (Some(bounded), Some(work)) = (&self.bounded, &self.copy) {
            bounded.settle(lanes, timeouts, work.as_slice());
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

    /// A rank that the operation waits for: one of which it wants bytes, or else one to which it
    /// has some to send.
    pub(crate) fn waits_for(&self) -> Option<usize> {
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
        Some((header, &bytes[slice(&(*done..end))]))
    }

    /// The segment of [`Execution::next_send`], of `bytes` bytes, is on its way.
    pub(crate) fn sent(&mut self, peer: usize, bytes: usize) {
        let index = self.queues[peer].sends[0];
        self.steps[index].done += bytes as u64;
        if self.steps[index].done == self.steps[index].step.range.end {
            self.queues[peer].sends.pop_front();
            self.left -= 1;
        }
    }

    /// Takes in the next segment from a rank. `false`: not yet, earlier steps are not done with the
    /// same bytes.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] where it is not the one that this rank expects.
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
        let target = &mut memory[slice(&range)];
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

    /// Up to where the bytes of a step are free of earlier steps.
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
        let (ours, theirs) = (self.descriptor(step), header.descriptor);
        let pairs = [
            (
                "operation",
                name(theirs.operation).to_owned(),
                name(ours.operation).to_owned(),
            ),
            named(
                &ElementType::ALL,
                "element type",
                theirs.element,
                ours.element,
            ),
            named(
                &Reduction::ALL,
                "reduction",
                theirs.reduction,
                ours.reduction,
            ),
            number("root", theirs.root, ours.root),
            (
                "delivery",
                delivery(theirs.is_bounded),
                delivery(ours.is_bounded),
            ),
            number("bytes", theirs.bytes, ours.bytes),
            named(
                &Algorithm::ALL,
                "algorithm",
                theirs.algorithm,
                ours.algorithm,
            ),
            number("offset", header.offset, done - step.range.start),
        ];
        let different = pairs.into_iter().find(|(_, theirs, ours)| theirs != ours);
        let too_long = payload.len() as u64 > step.range.end - done || payload.is_empty();
        let length = too_long.then(|| {
            let left = format!("at most {}", step.range.end - done);
            ("bytes of a segment", payload.len().to_string(), left)
        });
        match different.or(length) {
            None => Ok(()),
            Some((argument, theirs, ours)) => Err(CollectiveError::Mismatch {
                operation: self.number,
                rank: peer,
                argument,
                theirs,
                ours,
            }),
        }
    }

    /// The end of an operation whose steps are done.
    pub(crate) fn finish(mut self, now_ns: u64) -> (Report, Buffers) {
        if let (Some(copy), Some(output)) = (&self.copy, &mut self.buffers.output) {
            let result = self.plan.after.clone().unwrap_or(0..0);
            let bytes = &copy.as_slice()[slice(&result)];
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
            bytes: self.plan.bytes,
            missing_bytes: missing_bytes.sum(),
            limit: limit_ns.map(std::time::Duration::from_nanos),
            missing,
            elapsed: std::time::Duration::from_nanos(now_ns.saturating_sub(self.started_ns)),
            timeout: std::time::Duration::from_nanos(self.timeout_ns),
        };
        (report, self.buffers)
    }

    /// The memory of an operation that does not go on.
    pub(crate) fn into_buffers(self) -> Buffers {
        self.buffers
    }
}

fn delivery(is_bounded: bool) -> String {
    if is_bounded { "bounded" } else { "exact" }.to_owned()
}

/// Two codes of one of `all`, by name. Codes count from 1; 0 stands for none.
fn named<T: ToString>(
    all: &[T],
    argument: &'static str,
    theirs: u8,
    ours: u8,
) -> (&'static str, String, String) {
    let name = |code: u8| {
        let value = usize::from(code).checked_sub(1).and_then(|at| all.get(at));
        value.map_or_else(|| "none".to_owned(), ToString::to_string)
    };
    (argument, name(theirs), name(ours))
}

fn number<T: ToString>(
    argument: &'static str,
    theirs: T,
    ours: T,
) -> (&'static str, String, String) {
    (argument, theirs.to_string(), ours.to_string())
}

/// Which earlier steps each step must wait for: those that touch bytes in common, of which one
/// writes.
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

fn slice(range: &Range<u64>) -> Range<usize> {
    usize_of(range.start)..usize_of(range.end)
}

/// A place within memory.
fn usize_of(place: u64) -> usize {
    usize::try_from(place).expect("places lie within memory")
}
