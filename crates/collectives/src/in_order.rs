//! The collective operations of a rank that run, in their order.

use std::collections::VecDeque;

use farwrite::deadline::{Tally, Timeouts};
use farwrite::{Endpoint, Fabric};

use crate::bounded::BoundedOptions;
use crate::bounded::lane::BoundedLane;
use crate::error::CollectiveError;
use crate::execution::Execution;
use crate::lane::Lane;
use crate::member::OperationId;
use crate::segment::{HEADER_BYTES, Header};

/// Operations that make progress at a time; later ones wait.
const ACTIVE: usize = 8;

/// The collective operations of a rank.
///
/// Between two ranks, segments go in the order of operations. So a segment that has arrived is for
/// the oldest operation that wants one from that rank, or for one that has not begun here.
#[derive(Debug)]
pub(crate) struct OrderedOperations {
    /// By rank; `None` for this one.
    pub(crate) lanes: Vec<Option<Lane>>,
    /// The same, for contributions to bounded operations.
    pub(crate) bounded_lanes: Vec<Option<BoundedLane>>,
    timeouts: Timeouts,
    /// Operations that are not over, in order.
    running: VecDeque<(OperationId, Execution)>,
    /// Operations that were started.
    started: u64,
}

impl OrderedOperations {
    pub(crate) fn new(
        lanes: Vec<Option<Lane>>,
        bounded_lanes: Vec<Option<BoundedLane>>,
        options: BoundedOptions,
    ) -> Self {
        Self {
            lanes,
            bounded_lanes,
            timeouts: Timeouts::new(options.policy, options.bounds),
            running: VecDeque::new(),
            started: 0,
        }
    }

    /// Operations that were started; the number of the next one.
    pub(crate) fn started(&self) -> u64 {
        self.started
    }

    pub(crate) fn start(&mut self, id: OperationId, mut execution: Execution) {
        execution.number = self.started;
        self.started += 1;
        self.running.push_back((id, execution));
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Execution> {
        self.running.iter().map(|(_, execution)| execution)
    }

    /// All operations that are not over.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (OperationId, Execution)> {
        self.running.drain(..)
    }

    /// An operation that is over.
    pub(crate) fn take_done(&mut self) -> Option<(OperationId, Execution)> {
        let mut active = self.running.iter().take(ACTIVE);
        let place = active.position(|(_, execution)| execution.is_done())?;
        let (id, execution) = self.running.remove(place)?;
        execution.settle(&mut self.bounded_lanes, &mut self.timeouts);
        Some((id, execution))
    }

    /// When the first phase of a bounded operation ends.
    pub(crate) fn limit_ns(&self) -> Option<u64> {
        self.running().find_map(Execution::limit_ns)
    }

    /// Bounded operations are cut: how often, and what that cost.
    pub(crate) fn tally(&self) -> Tally {
        self.timeouts.tally()
    }

    /// Goes on with the first phase of the oldest bounded operation. One at a time is in it: the
    /// records of one say where the next one's messages begin.
    ///
    /// # Errors
    /// Those of the endpoint.
    pub(crate) fn collect<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        now_ns: u64,
    ) -> Result<bool, farwrite::Error> {
        for lane in self.bounded_lanes.iter_mut().flatten() {
            lane.tend(endpoint)?;
        }
        let mut active = self.running.iter_mut().take(ACTIVE);
        let oldest = active.find(|(_, execution)| execution.is_bounded());
        let Some((_, oldest)) = oldest else {
            return Ok(false);
        };
        oldest.collect(
            endpoint,
            &mut self.bounded_lanes,
            &mut self.timeouts,
            now_ns,
        )
    }

    /// Passes on one segment in each direction for each operation and rank. Returns how many.
    ///
    /// # Errors
    /// As [`OrderedOperations::receive`].
    pub(crate) fn progress<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        most: u64,
    ) -> Result<usize, CollectiveError> {
        let mut segments = 0;
        for place in 0..self.running.len().min(ACTIVE) {
            for peer in 0..self.lanes.len() {
                segments += usize::from(self.receive(endpoint, place, peer)?);
                segments += usize::from(self.send(endpoint, place, peer, most)?);
            }
        }
        Ok(segments)
    }

    /// Sends one segment of an operation to a rank, if one is ready and it is its turn.
    fn send<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        place: usize,
        peer: usize,
        most: u64,
    ) -> Result<bool, CollectiveError> {
        let Some(lane) = self.lanes[peer].as_mut().filter(|lane| lane.has_room()) else {
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
        let bytes = payload.len();
        let sent = lane.send(endpoint, &header.encode(), payload)?;
        if sent {
            execution.sent(peer, bytes);
        }
        Ok(sent)
    }

    /// Takes in one segment of an operation from a rank, if it is there and can be used.
    ///
    /// # Errors
    /// [`CollectiveError::Mismatch`], [`CollectiveError::Connection`], and those of the endpoint.
    fn receive<F: Fabric>(
        &mut self,
        endpoint: &mut Endpoint<F>,
        place: usize,
        peer: usize,
    ) -> Result<bool, CollectiveError> {
        let Some(lane) = &mut self.lanes[peer] else {
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
        let Some(bytes) = lane.front(endpoint).map_err(broken)? else {
            return Ok(false);
        };
        let header = Header::decode(bytes);
        let header = header.ok_or_else(|| broken("a segment has no header".into()))?;
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
        let taken = execution.receive(peer, &header, &bytes[HEADER_BYTES..])?;
        if taken {
            lane.release(endpoint)?;
        }
        Ok(taken)
    }
}
