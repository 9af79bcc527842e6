//! The running collective operations of a rank, in order.

use std::collections::VecDeque;

use farwrite::{Endpoint, Fabric};
use farwrite_deadline::CutCounts;

use crate::bounded::BoundedGroup;
use crate::bounded::measurements::GroupMeasurements;
use crate::bounded::open_records::OpenRecords;
use crate::bounded::qp::BoundedQp;
use crate::bounded::record::{Record, Stage};
use crate::error::CollectiveError;
use crate::exact_qp::ExactQp;
use crate::execution::Execution;
use crate::member::OperationId;
use crate::scratch::Scratch;

/// The maximum number of operations that make progress at the same time. Later ones wait.
const ACTIVE: usize = 8;

/// The collective operations of a rank.
///
/// Between two ranks, segments are sent in the order of operations. So a segment that has arrived
/// belongs to the oldest operation that waits for one from that rank, or to an operation that has
/// not begun here.
#[derive(Debug)]
pub(crate) struct OrderedOperations {
    /// By rank; `None` for this rank.
    pub(crate) qps: Vec<Option<ExactQp>>,
    /// The same for contributions to bounded operations.
    pub(crate) bounded_qps: Vec<Option<BoundedQp>>,
    learned: GroupMeasurements,
    /// The records of bounded operations that are not part of them.
    pub(crate) records: OpenRecords,
    /// The records of this rank that must still be sent.
    own_records: Vec<Record>,
    /// For the operations of this rank, those that are not collective included.
    pub(crate) scratch: Scratch,
    /// The operations that have not ended, in order.
    running: VecDeque<(OperationId, Execution)>,
    /// The number of operations that were started.
    started: u64,
}

impl OrderedOperations {
    pub(crate) fn new(
        qps: Vec<Option<ExactQp>>,
        bounded_qps: Vec<Option<BoundedQp>>,
        learned: GroupMeasurements,
    ) -> Self {
        Self {
            records: OpenRecords::new(qps.len()),
            own_records: Vec::new(),
            qps,
            bounded_qps,
            learned,
            scratch: Scratch::default(),
            running: VecDeque::new(),
            started: 0,
        }
    }

    /// The number of operations that were started. This is also the number of the next one.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn start(&mut self, id: OperationId, mut execution: Execution) {
        let number = self.started;
        execution.number = number;
        self.started += 1;
        if let Some(size) = execution.separate_records() {
            let times_ns = [execution.started_ns, execution.timeout_ns];
            let descriptor = execution.record(Stage::Started).descriptor;
            self.records.open(number, descriptor, size, times_ns);
        }
        self.running.push_back((id, execution));
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Execution> {
        self.running.iter().map(|(_, execution)| execution)
    }

    /// Removes all operations that have not ended, and forgets all records.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (OperationId, Execution)> {
        self.records.clear();
        self.own_records.clear();
        self.running.drain(..)
    }

    /// Removes the operations from this number on that have not ended. None of these numbers starts again.
    pub(crate) fn drain_from(
        &mut self,
        number: u64,
    ) -> impl Iterator<Item = (OperationId, Execution)> {
        self.records.forget_from(number);
        self.started = self.started.min(number);
        let place = self
            .running
            .partition_point(|(_, execution)| execution.number < number);
        self.running.drain(place..)
    }

    /// The number of the first operation that has not ended, or else of the next one.
    pub(crate) fn oldest(&self) -> u64 {
        let oldest = self.running.front();
        oldest.map_or(self.started, |(_, execution)| execution.number)
    }

    /// The number of the last operation that is not over: it runs, or lacks records.
    pub(crate) fn newest(&self) -> Option<u64> {
        let running = self.running.back().map(|(_, execution)| execution.number);
        running.max(self.records.newest())
    }

    /// Removes an operation that has ended.
    pub(crate) fn take_done(&mut self) -> Option<(OperationId, Execution)> {
        let is_done = |execution: &Execution| {
            let awaits = execution.awaits_records() && self.records.get(execution.number).is_some();
            execution.is_done() && !awaits
        };
        let mut active = self.running.iter().take(ACTIVE);
        let place = active.position(|(_, execution)| is_done(execution))?;
        let (id, execution) = self.running.remove(place)?;
        execution.settle(&mut self.learned);
        self.records.note_ended(execution.number);
        Some((id, execution))
    }

    /// Processes the records of other ranks that belong to operations that have started here.
    /// Returns whether there were any.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`] if a rank runs a different operation.
    pub(crate) fn process_records(&mut self) -> Result<bool, CollectiveError> {
        self.records.process(self.started)
    }

    /// Removes and returns the records of this rank that must be sent, and learns from operations
    /// whose records are complete.
    ///
    /// # Errors
    /// None: the records of this rank fit its own operations.
    pub(crate) fn take_own_records(&mut self, rank: usize) -> Result<Vec<Record>, CollectiveError> {
        for record in &self.own_records {
            self.records.note(rank, record)?;
        }
        while let Some((key, bytes, proposals)) = self.records.take_complete() {
            self.learned.agree_later(key, bytes, proposals);
        }
        Ok(std::mem::take(&mut self.own_records))
    }

    /// The number of messages of bounded operations to a rank that have not left.
    pub(crate) fn bounded_in_flight(&self, peer: usize) -> usize {
        self.bounded_qps[peer]
            .as_ref()
            .map_or(0, BoundedQp::in_flight)
    }

    /// Continues to send messages of bounded operations that have ended. Returns whether it did
    /// anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn tend<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<bool, farwrite::Error> {
        let mut moved = false;
        for qp in self.bounded_qps.iter_mut().flatten() {
            moved |= qp.tend(endpoint, now_ns)?;
        }
        Ok(moved)
    }

    /// The time at which the first phase ends, for the oldest bounded operation in that phase, or at which a
    /// step around a ring ends, for any.
    pub(crate) fn limit_ns(&self) -> Option<u64> {
        let mut open = self.running().filter(|running| !running.has_collected());
        let oldest = open.next()?.limit_ns();
        let steps = open.filter_map(Execution::step_limit_ns);
        oldest.into_iter().chain(steps).min()
    }

    /// How often a deadline cut bounded operations, and how much data that cost.
    pub(crate) fn cut_counts(&self) -> CutCounts {
        self.learned.cut_counts()
    }

    /// Continues the first phase of bounded operations. An operation begins when all earlier ones
    /// have handed their messages to the queue pairs, and ends after them. Returns whether it did
    /// anything.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn collect<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<bool, farwrite::Error> {
        let (mut moved, mut may_end) = (self.tend(endpoint, now_ns)?, true);
        // Operations that wait for a place are not announced, so other ranks need not remember them.
        let active = self.running.iter_mut().take(ACTIVE);
        let announced = active.filter_map(|(_, execution)| execution.announce());
        self.own_records.extend(announced);
        let active = self.running.iter_mut().take(ACTIVE);
        for (_, execution) in active.filter(|(_, execution)| execution.is_bounded()) {
            let group = BoundedGroup {
                endpoint: &mut *endpoint,
                qps: &mut self.bounded_qps,
                learned: &mut self.learned,
                scratch: &mut self.scratch,
                now_ns,
            };
            moved |= execution.collect(group, may_end)?;
            self.own_records.extend(execution.take_record());
            may_end &= execution.has_collected();
            if !execution.is_sent() {
                break;
            }
        }
        Ok(moved)
    }

    /// Sends and receives one segment for each operation and rank. Returns the number of segments.
    ///
    /// # Errors
    /// As [`OrderedOperations::receive`].
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        most: u64,
        now_ns: u64,
    ) -> Result<usize, CollectiveError> {
        let mut segments = 0;
        self.compare_segments(endpoint)?;
        for place in 0..self.running.len().min(ACTIVE) {
            for peer in 0..self.qps.len() {
                segments += usize::from(self.receive(endpoint, place, peer, now_ns)?);
                segments += usize::from(self.send(endpoint, place, peer, most)?);
            }
        }
        Ok(segments)
    }

    /// Finds a rank that runs an exact operation where this rank runs a bounded one that sends no
    /// segments.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`], [`CollectiveError::Connection`].
    fn compare_segments<F: Fabric>(&self, endpoint: &Endpoint<F>) -> Result<(), CollectiveError> {
        if self.records.newest().is_none() {
            return Ok(());
        }
        let qps = self.qps.iter().enumerate();
        for (rank, qp) in qps.filter_map(|(rank, qp)| Some((rank, qp.as_ref()?))) {
            let broken = |problem| CollectiveError::Connection { rank, problem };
            if let Some((header, _)) = qp.front_segment(endpoint).map_err(broken)? {
                self.records.compare(rank, &header)?;
            }
        }
        Ok(())
    }

    /// Sends one segment of an operation to a rank, if a segment is ready and the operation is
    /// next.
    fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        place: usize,
        peer: usize,
        most: u64,
    ) -> Result<bool, CollectiveError> {
        let Some(qp) = self.qps[peer].as_mut().filter(|qp| qp.has_room()) else {
            return Ok(false);
        };
        let mut earlier = self.running.range(..place);
        if earlier.any(|(_, earlier)| earlier.sends_to(peer)) {
            return Ok(false);
        }
        let execution = &mut self.running[place].1;
        let Some((header, payload)) = execution.next_send(peer, most) else {
            return Ok(false);
        };
        let (bytes, left) = (payload.len(), execution.left_to(peer));
        let sent = qp.send(endpoint, &header.encode(), payload, left)?;
        if let Some(scheme) = sent {
            execution.sent(peer, bytes, scheme);
        }
        Ok(sent.is_some())
    }

    /// Processes one segment of an operation from a rank, if it has arrived and can be used.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`], [`CollectiveError::Connection`], and those of the endpoint.
    fn receive<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        place: usize,
        peer: usize,
        now_ns: u64,
    ) -> Result<bool, CollectiveError> {
        let Some(qp) = &mut self.qps[peer] else {
            return Ok(false);
        };
        let execution = &self.running[place].1;
        if !execution.receives_from(peer) {
            return Ok(false);
        }
        let broken = |problem| CollectiveError::Connection {
            rank: peer,
            problem,
        };
        let Some((header, payload)) = qp.front_segment(endpoint).map_err(broken)? else {
            return Ok(false);
        };
        let number = execution.number;
        if header.number != number {
            let mut earlier = self.running.range(..place);
            if earlier.any(|(_, earlier)| earlier.number == header.number) {
                return Ok(false);
            }
            return Err(CollectiveError::Mismatch {
                operation: number,
                rank: peer,
                argument: "number of the operation",
                theirs: header.number.to_string(),
                ours: number.to_string(),
            });
        }
        let execution = &mut self.running[place].1;
        let taken = execution.receive(peer, &header, payload)?;
        if taken {
            execution.note_arrival(peer, now_ns);
            qp.release(endpoint, now_ns)?;
        }
        Ok(taken)
    }
}
