//! One rank of one group.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::{Endpoint, Fabric};

use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::execution::Execution;
use crate::info::{MAX_RANKS, MemberInfo, Shape};
use crate::lane::Lane;
use crate::operation::Operation;
use crate::options::{GroupOptions, OperationOptions};
use crate::plan::{self, Place, Plan};
use crate::report::Report;
use crate::segment::{HEADER_BYTES, Header};

/// Operations that make progress at a time; later ones wait.
const ACTIVE: usize = 8;
/// Most segments that a poll passes on, so that packets do not wait for long.
const SEGMENTS_A_POLL: usize = 16;

/// Names an operation of a [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(u64);

/// An operation that is over.
#[derive(Debug)]
pub struct Finished {
    /// Which.
    pub id: OperationId,
    /// How it went.
    pub result: Result<Report, CollectiveError>,
    /// Its memory.
    pub buffers: Buffers,
}

/// One rank of one group, without a clock, threads or sockets of its own.
///
/// All ranks start the same operations in the same order. Several can be in flight: each makes
/// progress as far as its data allows, and between two ranks data goes in the order of operations.
/// An operation that fails ends the group at this rank: the ranks no longer agree on what comes
/// next.
pub struct Member<F: Fabric> {
    endpoint: Endpoint<F>,
    place: Place,
    options: GroupOptions,
    /// By rank; `None` for this one.
    lanes: Vec<Option<Lane>>,
    connected: bool,
    /// Operations that are not over, in order.
    running: VecDeque<(OperationId, Execution)>,
    /// Counts the calls of this rank.
    next_id: u64,
    /// Counts the operations of the group.
    next_number: u64,
    finished: VecDeque<Finished>,
    /// Why the group cannot go on.
    failure: Option<CollectiveError>,
}

impl<F: Fabric> Member<F> {
    /// Rank `rank` of `ranks`, over an endpoint that nobody else uses.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], [`CollectiveError::Endpoint`].
    pub fn new(
        mut endpoint: Endpoint<F>,
        rank: usize,
        ranks: usize,
        options: GroupOptions,
    ) -> Result<Self, CollectiveError> {
        let wrong = |argument, value: String, expected: String| CollectiveError::Argument {
            rank,
            argument,
            value,
            expected,
        };
        if !(1..=MAX_RANKS).contains(&ranks) {
            let expected = format!("from 1 to {MAX_RANKS}");
            return Err(wrong("ranks", ranks.to_string(), expected));
        }
        if rank >= ranks {
            let expected = format!("there are {ranks} ranks, counted from 0");
            return Err(wrong("rank", rank.to_string(), expected));
        }
        if let Some((argument, value, expected)) = options.problem() {
            return Err(wrong(argument, value, expected));
        }
        let mut lanes = Vec::new();
        for peer in 0..ranks {
            let lane = |endpoint: &mut Endpoint<F>| {
                let qp = endpoint.create_qp(options.queue_pair())?;
                let bytes = options.segment_bytes() as usize;
                let depth = options.segments_in_flight as usize;
                Ok::<_, farwrite::Error>(Lane::new(qp, options.scheme.tag(), bytes, depth))
            };
            let lane = (peer != rank).then(|| lane(&mut endpoint)).transpose()?;
            lanes.push(lane);
        }
        Ok(Self {
            endpoint,
            place: Place { rank, ranks },
            options,
            lanes,
            connected: ranks == 1,
            running: VecDeque::new(),
            next_id: 0,
            next_number: 0,
            finished: VecDeque::new(),
            failure: None,
        })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.place.rank
    }

    /// Ranks of the group.
    pub fn ranks(&self) -> usize {
        self.place.ranks
    }

    /// The endpoint, to wait on or to look at.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<F> {
        &mut self.endpoint
    }

    /// What the other ranks need to [connect](Member::connect). It holds keys: it must travel
    /// confidentially.
    ///
    /// # Errors
    /// [`CollectiveError::Endpoint`].
    pub fn info(&self) -> Result<Vec<u8>, CollectiveError> {
        let mut queue_pairs = Vec::new();
        for lane in self.lanes.iter().flatten() {
            let info = self.endpoint.qp_info(lane.queue_pair())?.encode();
            queue_pairs.push(info.map_err(|error| CollectiveError::Info {
                rank: self.place.rank,
                problem: error.to_string(),
            })?);
        }
        let info = MemberInfo {
            rank: to_u16(self.place.rank),
            ranks: to_u16(self.place.ranks),
            shape: self.shape(),
            queue_pairs,
        };
        Ok(info.encode())
    }

    fn shape(&self) -> Shape {
        Shape {
            packet_bytes: self.options.packet_bytes,
            packets_per_segment: self.options.packets_per_segment,
            segments_in_flight: self.options.segments_in_flight,
        }
    }

    /// Joins this rank to all others. `infos` has what [`Member::info`] of each rank gave, in the
    /// order of ranks, its own included.
    ///
    /// # Errors
    /// [`CollectiveError::Info`] names the rank whose information will not do, and why.
    pub fn connect(&mut self, infos: &[Vec<u8>]) -> Result<(), CollectiveError> {
        if infos.len() != self.place.ranks {
            return Err(CollectiveError::Argument {
                rank: self.place.rank,
                argument: "infos",
                value: infos.len().to_string(),
                expected: format!("one for each of {} ranks", self.place.ranks),
            });
        }
        if self.connected {
            return Ok(());
        }
        for (peer, bytes) in infos.iter().enumerate() {
            self.connect_to(peer, bytes)
                .map_err(|problem| CollectiveError::Info {
                    rank: peer,
                    problem,
                })?;
        }
        self.connected = true;
        Ok(())
    }

    fn connect_to(&mut self, peer: usize, bytes: &[u8]) -> Result<(), String> {
        let info = MemberInfo::decode(bytes)?;
        if usize::from(info.rank) != peer {
            return Err(format!(
                "its information says that it is rank {}",
                info.rank
            ));
        }
        if usize::from(info.ranks) != self.place.ranks {
            let (theirs, ours) = (info.ranks, self.place.ranks);
            return Err(format!(
                "it has a group of {theirs} ranks, this rank of {ours}"
            ));
        }
        let (theirs, ours) = (info.shape, self.shape());
        if theirs != ours {
            return Err(format!("it has options {theirs:?}, this rank {ours:?}"));
        }
        if let Some(lane) = &mut self.lanes[peer] {
            let info = info.queue_pair_to(self.place.rank)?;
            let connected = self.endpoint.connect_qp(lane.queue_pair(), &info);
            connected.map_err(|error| error.to_string())?;
            lane.open(&mut self.endpoint)
                .map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Starts an operation. [`Member::take_finished`] gives its buffers back.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], [`CollectiveError::NotConnected`], or why the group has
    /// ended; the buffers are dropped then.
    pub fn start(
        &mut self,
        now_ns: u64,
        operation: &Operation,
        options: OperationOptions,
        buffers: Buffers,
    ) -> Result<OperationId, CollectiveError> {
        if let Some(error) = self.unusable() {
            return Err(error);
        }
        let plan = plan::plan(self.place, operation, options.algorithm, &buffers)?;
        Ok(self.start_plan(now_ns, plan, options.timeout, buffers))
    }

    /// Starts an operation that was planned for this rank. Where the group cannot be used, it ends
    /// at once.
    pub(crate) fn start_plan(
        &mut self,
        now_ns: u64,
        plan: Plan,
        timeout: Option<Duration>,
        buffers: Buffers,
    ) -> OperationId {
        let id = OperationId(self.next_id);
        self.next_id += 1;
        if let Some(error) = self.unusable() {
            let result = Err(error);
            self.finished.push_back(Finished {
                id,
                result,
                buffers,
            });
            return id;
        }
        let timeout = timeout.unwrap_or(self.options.timeout);
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let number = self.next_number;
        self.next_number += 1;
        let ranks = self.place.ranks;
        let execution = Execution::new(number, [now_ns, timeout_ns], ranks, plan, buffers);
        self.running.push_back((id, execution));
        id
    }

    /// Why no operation can start.
    fn unusable(&self) -> Option<CollectiveError> {
        let not_connected = (!self.connected).then_some(CollectiveError::NotConnected);
        self.failure.clone().or(not_connected)
    }

    /// The operation that has ended first, of those that were not taken yet.
    pub fn take_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// Takes in what has arrived, and sends what is ready, at `now_ns`, which must not run
    /// backward. Returns when to call again at the latest, if nothing arrives before; `None` when
    /// only an arrival can bring more to do. Call it also after [`Member::start`].
    ///
    /// An error of the group ends its operations, each with that error; it is not returned here.
    pub fn poll(&mut self, now_ns: u64) -> Option<u64> {
        let polled = self.endpoint.poll(now_ns).map_err(CollectiveError::from);
        let moved = polled.and_then(|next_ns| Ok((next_ns, self.progress(now_ns)?)));
        let (next_ns, moved) = match moved {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(error);
                return None;
            }
        };
        // What was sent leaves with the next poll.
        let again = moved.then_some(now_ns);
        let deadlines = self.running.iter().map(|(_, e)| e.deadline_ns());
        let next = [next_ns, again, deadlines.min()];
        next.into_iter().flatten().min()
    }

    /// Segments that other ranks have not confirmed.
    pub fn segments_in_flight(&self) -> usize {
        self.lanes.iter().flatten().map(Lane::in_flight).sum()
    }

    /// Ends the group: every operation that runs or is started later fails with `error`.
    pub fn fail(&mut self, error: CollectiveError) {
        let error = self.failure.get_or_insert(error);
        for (id, execution) in self.running.drain(..) {
            self.finished.push_back(Finished {
                id,
                result: Err(error.clone()),
                buffers: execution.into_buffers(),
            });
        }
    }

    /// Passes on what can be. Returns whether it did anything.
    fn progress(&mut self, now_ns: u64) -> Result<bool, CollectiveError> {
        for (rank, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(lane) = lane {
                lane.reclaim()
                    .map_err(|problem| CollectiveError::Connection { rank, problem })?;
                lane.post(&mut self.endpoint)?;
            }
        }
        let mut segments = 0;
        loop {
            let before = segments;
            for place in 0..self.running.len().min(ACTIVE) {
                for peer in 0..self.place.ranks {
                    segments += usize::from(self.receive(place, peer)?);
                    segments += usize::from(self.send(place, peer)?);
                }
            }
            if segments == before || segments >= SEGMENTS_A_POLL {
                break;
            }
        }
        self.end_operations(now_ns)?;
        Ok(segments > 0)
    }

    /// Sends one segment of an operation to a rank, if one is ready and it is its turn.
    fn send(&mut self, place: usize, peer: usize) -> Result<bool, CollectiveError> {
        let Some(lane) = &mut self.lanes[peer] else {
            return Ok(false);
        };
        let mut earlier = self.running.range(..place);
        if !lane.has_room() || earlier.any(|(_, e)| e.sends_to(peer)) {
            return Ok(false);
        }
        let execution = &mut self.running[place].1;
        let Some((header, payload)) = execution.next_send(peer, self.options.payload_bytes())
        else {
            return Ok(false);
        };
        let bytes = payload.len();
        let sent = lane.send(&mut self.endpoint, &header.encode(), payload)?;
        if sent {
            execution.sent(peer, bytes);
        }
        Ok(sent)
    }

    /// Takes in one segment of an operation from a rank, if it is there and can be used.
    fn receive(&mut self, place: usize, peer: usize) -> Result<bool, CollectiveError> {
        let Some(lane) = &mut self.lanes[peer] else {
            return Ok(false);
        };
        let execution = &mut self.running[place].1;
        if !execution.receives_from(peer) {
            return Ok(false);
        }
        let broken = |problem| CollectiveError::Connection {
            rank: peer,
            problem,
        };
        let front = lane.front(&self.endpoint).map_err(broken)?;
        let Some(bytes) = front else {
            return Ok(false);
        };
        let header = Header::decode(bytes);
        let header = header.ok_or_else(|| broken("a segment has no header".into()))?;
        let number = execution.number;
        if header.number < number && self.running.iter().any(|(_, e)| e.number == header.number) {
            // An earlier operation takes it.
            return Ok(false);
        }
        let execution = &mut self.running[place].1;
        if header.number != number {
            return Err(CollectiveError::Mismatch {
                operation: execution.number,
                rank: peer,
                argument: "number of the operation",
                theirs: header.number.to_string(),
                ours: execution.number.to_string(),
            });
        }
        let taken = execution.receive(peer, &header, &bytes[HEADER_BYTES..])?;
        if taken {
            lane.release(&mut self.endpoint)?;
        }
        Ok(taken)
    }

    /// Ends operations that are done, and the group if a deadline has come.
    fn end_operations(&mut self, now_ns: u64) -> Result<(), CollectiveError> {
        let mut place = 0;
        while place < self.running.len().min(ACTIVE) {
            if !self.running[place].1.is_done() {
                place += 1;
                continue;
            }
            if let Some((id, execution)) = self.running.remove(place) {
                let (report, buffers) = execution.finish(now_ns);
                let result = Ok(report);
                self.finished.push_back(Finished {
                    id,
                    result,
                    buffers,
                });
            }
        }
        let mut running = self.running.iter().map(|(_, execution)| execution);
        let late = running.find(|e| e.deadline_ns() <= now_ns);
        match late {
            None => Ok(()),
            Some(late) => Err(CollectiveError::Timeout {
                operation: late.number,
                name: late.name(),
                after: Duration::from_nanos(late.timeout_ns),
                rank: late.waits_for().unwrap_or(self.place.rank),
                state: "has not sent or taken all of its data".to_owned(),
            }),
        }
    }
}

fn to_u16(rank: usize) -> u16 {
    u16::try_from(rank).expect("groups have at most MAX_RANKS ranks")
}
