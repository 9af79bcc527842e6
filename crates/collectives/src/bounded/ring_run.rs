//! The part of an all-reduce around a ring that has deadlines.
//!
//! A message of a step leaves as soon as the message of the step before with the same packets has
//! been processed. That one is processed when it has ended, or at the deadline of its step with the
//! packets that have arrived.

use farwrite::{Endpoint, Error, Fabric, SchemeTag};

use super::collect::Collected;
use super::contribution::runs;
use super::missing_ranges::MissingRanges;
use super::qp::{Arrival, BoundedQp};
use super::ring::RingPlan;
use crate::index::to_usize;
use crate::scratch::Scratch;

/// An all-reduce around a ring in progress.
#[derive(Debug)]
pub(super) struct RingRun {
    plan: RingPlan,
    /// By part and packet: the number of contributions in the values of this rank. 0 if a reduced
    /// packet has not arrived.
    counts: Vec<Vec<u16>>,
    scheme: SchemeTag,
    started_ns: u64,
    /// By step: when it ends at the latest. Empty if the operation has no deadline.
    ends_ns: Vec<u64>,
    /// By step: when everything of it had been processed, counted from the start.
    step_ends_ns: Vec<u64>,
    receiving: Cursor,
    sending: Cursor,
    /// The number of the next message from the rank before this one.
    next: u64,
    /// Whether messages of earlier operations come before that message.
    is_blocked: bool,
    /// Whether a deadline has ended a message before it had arrived or was sent.
    timed_out: bool,
    completed_ns: Option<u64>,
    /// A message while it is written or read.
    buffer: Vec<u8>,
}

/// A message, in the order of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cursor {
    step: usize,
    segment: usize,
}

impl Cursor {
    /// The first message from this one on, if `part` is the part of each step.
    fn settled(mut self, plan: &RingPlan, part: impl Fn(usize) -> usize) -> Self {
        while self.step < plan.steps() && self.segment >= plan.segments(part(self.step)) {
            self = Self {
                step: self.step + 1,
                segment: 0,
            };
        }
        self
    }
}

impl RingRun {
    /// Begins at `started_ns`. `ends_ns` has the deadline of each step, counted from then; it is empty
    /// if there are none. The queue pair to the rank before this one expects the messages of this
    /// operation.
    pub(super) fn new(
        plan: &RingPlan,
        qps: &mut [Option<BoundedQp>],
        scheme: SchemeTag,
        (started_ns, ends_ns): (u64, Vec<u64>),
        scratch: &mut Scratch,
    ) -> Self {
        let steps = plan.steps();
        let messages = (0..steps).map(|step| plan.segments(plan.received(step)) as u64);
        let before = qps[plan.before()].as_mut();
        let next = before.map_or(0, |qp| qp.begin(messages.sum()));
        let ends_ns = ends_ns.into_iter();
        let begin = Cursor {
            step: 0,
            segment: 0,
        };
        Self {
            counts: (0..plan.ranks())
                .map(|part| vec![1; plan.packets(part)])
                .collect(),
            scheme,
            started_ns,
            ends_ns: ends_ns.map(|ns| started_ns.saturating_add(ns)).collect(),
            step_ends_ns: Vec::with_capacity(steps),
            receiving: begin.settled(plan, |step| plan.received(step)),
            sending: begin.settled(plan, |step| plan.sent(step)),
            next,
            is_blocked: false,
            timed_out: false,
            completed_ns: None,
            buffer: scratch.take(to_usize(plan.segment_bytes)),
            plan: plan.clone(),
        }
    }

    /// Sends and receives as much as possible now. The queue pairs must have been tended in this
    /// poll. Returns whether it did anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(super) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        work: &mut [u8],
        now_ns: u64,
    ) -> Result<bool, Error> {
        let mut moved = false;
        while self.receive(endpoint, qps, work, now_ns)? | self.send(endpoint, qps, work, now_ns)? {
            moved = true;
        }
        if self.completed_ns.is_none() && self.is_complete() {
            self.completed_ns = Some(now_ns);
        }
        Ok(moved)
    }

    /// Processes the next message from the rank before this one, if it has ended or is late.
    fn receive<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        work: &mut [u8],
        now_ns: u64,
    ) -> Result<bool, Error> {
        let Cursor { step, segment } = self.receiving;
        let Some(qp) = qps[self.plan.before()].as_mut() else {
            return Ok(false);
        };
        if step == self.plan.steps() {
            return Ok(false);
        }
        self.is_blocked = !qp.is_next(self.next);
        if self.is_blocked {
            return Ok(false);
        }
        let is_late = self.is_late(step, now_ns);
        let next = self.next;
        let arrival = qp.arrivals().find(|(number, _)| *number == next);
        let arrival = arrival.map(|(_, arrival)| arrival);
        let is_over = arrival.as_ref().is_some_and(Arrival::is_over);
        if !is_over && !is_late {
            return Ok(false);
        }
        self.take(endpoint, arrival.as_ref(), work)?;
        self.timed_out |= !is_over;
        self.next += 1;
        qp.end(self.next, 0);
        qp.tend(endpoint, now_ns)?;
        let following = Cursor {
            step,
            segment: segment + 1,
        };
        self.receiving = following.settled(&self.plan, |step| self.plan.received(step));
        let end_ns = now_ns.saturating_sub(self.started_ns);
        self.step_ends_ns.resize(self.receiving.step, end_ns);
        Ok(true)
    }

    /// Uses the packets of the next message that have arrived.
    fn take<F: Fabric>(
        &mut self,
        endpoint: &Endpoint<F>,
        arrival: Option<&Arrival<'_>>,
        work: &mut [u8],
    ) -> Result<(), Error> {
        let Self { plan, buffer, .. } = self;
        let Cursor { step, segment } = self.receiving;
        let part = plan.received(step);
        let packets = plan.packets_in(part, segment);
        let counts = &mut self.counts[part][packets.clone()];
        if !plan.reduces_in(step) {
            counts.fill(0);
        }
        let Some(arrival) = arrival else {
            return Ok(());
        };
        for run in runs(&arrival.packets(packets.len(), plan.packet_bytes)) {
            for index in run {
                let packet = packets.start + index;
                let framed = &mut buffer[..to_usize(plan.framed_bytes(part, packet))];
                arrival.read(endpoint, index as u64 * plan.packet_bytes, framed)?;
                if let Some(count) = plan.read(step, packet, framed, work) {
                    counts[index] = count;
                }
            }
        }
        Ok(())
    }

    /// Sends the next message if this rank has its values. After the deadline of its step, this rank leaves the
    /// message out.
    fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        qps: &mut [Option<BoundedQp>],
        work: &[u8],
        now_ns: u64,
    ) -> Result<bool, Error> {
        let Cursor { step, segment } = self.sending;
        let Some(qp) = qps[self.plan.next()].as_mut().filter(|_| self.can_send()) else {
            return Ok(false);
        };
        if self.is_late(step, now_ns) {
            qp.end(0, 1);
            qp.tend(endpoint, now_ns)?;
            self.timed_out = true;
        } else {
            let part = self.plan.sent(step);
            let counts = &self.counts[part];
            let length = self
                .plan
                .write(part, segment, counts, work, &mut self.buffer);
            let end_ns = self.ends_ns.get(step).copied();
            if !qp.send(endpoint, &self.buffer[..length], self.scheme, end_ns)? {
                return Ok(false);
            }
        }
        let following = Cursor {
            step,
            segment: segment + 1,
        };
        self.sending = following.settled(&self.plan, |step| self.plan.sent(step));
        Ok(true)
    }

    /// Whether there is a next message, and the message with the same packets has been received.
    fn can_send(&self) -> bool {
        let Cursor { step, segment } = self.sending;
        let is_there = |step| self.receiving > Cursor { step, segment };
        step < self.plan.steps() && step.checked_sub(1).is_none_or(is_there)
    }

    fn is_late(&self, step: usize, now_ns: u64) -> bool {
        self.ends_ns
            .get(step)
            .is_some_and(|&end_ns| end_ns <= now_ns)
    }

    /// When the steps ended, unless a deadline has ended one of them.
    pub(super) fn step_ends_ns(&self) -> Option<&[u64]> {
        (!self.timed_out).then_some(&self.step_ends_ns)
    }

    /// Whether all messages have been handed to the queue pair, or left out.
    pub(super) fn is_sent(&self) -> bool {
        self.sending.step == self.plan.steps()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_sent() && self.receiving.step == self.plan.steps()
    }

    /// The rank whose messages have not all ended, or otherwise the one to which messages must be
    /// sent.
    pub(super) fn waits_for(&self) -> Option<usize> {
        let receives = self.receiving.step < self.plan.steps();
        let sends = (!self.is_sent()).then(|| self.plan.next());
        if receives {
            Some(self.plan.before())
        } else {
            sends
        }
    }

    /// The next deadline at which something happens.
    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let receiving = (!self.is_blocked).then_some(self.receiving.step);
        let sending = self.can_send().then_some(self.sending.step);
        let steps = receiving.into_iter().chain(sending);
        steps
            .filter_map(|step| self.ends_ns.get(step).copied())
            .min()
    }

    /// Ends the operation at this rank, when it is complete: makes the results of the parts that it
    /// has. `source` has the contributions of this rank as they were sent.
    pub(super) fn finish(
        self,
        (source, work): (&[u8], &mut [u8]),
        scratch: &mut Scratch,
    ) -> Collected {
        let Self { plan, counts, .. } = self;
        let mut lacks = MissingRanges::default();
        let (mut received_bytes, mut expected_bytes) = (0, 0);
        for (owner, counts) in counts.iter().enumerate() {
            let is_own = owner == plan.rank;
            if !is_own && !plan.has_shares {
                continue;
            }
            // This rank owns a part: the other ranks contribute to it. Another part arrives or not.
            let most = if is_own { plan.ranks() as u64 - 1 } else { 1 };
            for (packet, &count) in counts.iter().enumerate() {
                let bytes = plan.place(owner, packet).len() as u64;
                let count = u64::from(count);
                let there = if is_own { count - 1 } else { count.min(1) };
                received_bytes += bytes * there;
                expected_bytes += bytes * most;
            }
            plan.settle(owner, counts, (source, &mut *work), &mut lacks);
        }
        let arrived = (0..plan.ranks()).map(|rank| {
            let counts = counts[plan.rank].iter();
            counts
                .map(|&count| plan.contributes(plan.rank, rank, count))
                .collect()
        });
        scratch.give(self.buffer);
        Collected {
            arrived: arrived.collect(),
            elapsed_ns: self
                .completed_ns
                .map_or(0, |at_ns| at_ns.saturating_sub(self.started_ns)),
            received_bytes,
            expected_bytes,
            timed_out: self.timed_out,
            missing: plan.has_shares.then(|| lacks.into_missing()),
        }
    }
}
