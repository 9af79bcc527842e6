//! One rank of one group.

mod polling;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::deadline::Tally;
use farwrite::{Endpoint, Fabric, QpOptions, QueuePair};

use crate::bounded::lane::BoundedLane;
use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::execution::Execution;
use crate::in_order::OrderedOperations;
use crate::info::{MAX_RANKS, MemberInfo, Shape};
use crate::lane::Lane;
use crate::operation::Operation;
use crate::options::{GroupOptions, NOTES_IN_FLIGHT, OperationOptions};
use crate::peers::Peers;
use crate::plan::{self, Plan};
use crate::report::Report;
use crate::send_receive::SendsAndReceives;
use crate::sizes::Place;

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
/// All ranks start the same collective operations in the same order. Several can be in flight: each
/// makes progress as far as its data allows, and between two ranks data goes in the order of
/// operations. An operation that fails, or that does not end by its deadline, ends the group, at
/// this rank and at all that it reaches: the ranks no longer agree on what comes next.
pub struct Member<F: Fabric> {
    endpoint: Endpoint<F>,
    place: Place,
    options: GroupOptions,
    in_order: OrderedOperations,
    send_receive: SendsAndReceives,
    peers: Peers,
    connected: bool,
    /// Counts the operations of this rank.
    next_id: u64,
    finished: VecDeque<Finished>,
    /// Why the group cannot go on.
    failure: Option<CollectiveError>,
    /// Whether others may still need what was sent: the group has not failed.
    data_matters: bool,
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
        if !options.sites.is_empty() && options.sites.len() != ranks {
            let sites = options.sites.len().to_string();
            return Err(wrong("sites", sites, format!("none, or {ranks}")));
        }
        if let Some((argument, value, expected)) = options.problem() {
            return Err(wrong(argument, value, expected));
        }
        let mut pairs = |wanted: &QpOptions| -> Result<Vec<_>, farwrite::Error> {
            let mut pair = |_| endpoint.create_qp(wanted.clone());
            let pair = |peer| (peer != rank).then_some(peer).map(&mut pair).transpose();
            (0..ranks).map(pair).collect()
        };
        let (data, depth) = (options.queue_pair(), options.segments_in_flight);
        let (bounded, notes) = (options.bounded_queue_pair(), options.note_queue_pair());
        let bounded_lane = |qp| BoundedLane::new(qp, &bounded, depth as usize);
        let in_order = OrderedOperations::new(
            lanes(pairs(&data)?, |qp| Lane::new(qp, &data, depth as usize)),
            lanes(pairs(&bounded)?, bounded_lane),
            options.bounded,
        );
        let point_lane = |qp| Lane::new(qp, &data, depth as usize);
        let send_receive = SendsAndReceives::new(lanes(pairs(&data)?, point_lane));
        let note_lane = |qp| Lane::new(qp, &notes, NOTES_IN_FLIGHT as usize);
        let peers = Peers::new(lanes(pairs(&notes)?, note_lane));
        Ok(Self {
            endpoint,
            place: options.place(rank, ranks),
            options,
            in_order,
            send_receive,
            peers,
            connected: ranks == 1,
            next_id: 0,
            finished: VecDeque::new(),
            failure: None,
            data_matters: true,
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
        let peers = (0..self.place.ranks).filter(|&peer| peer != self.place.rank);
        for qp in peers.flat_map(|peer| self.queue_pairs_to(peer)) {
            let info = self.endpoint.qp_info(qp)?.encode();
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
        let sites = &self.options.sites;
        let site = |rank: usize| sites.get(rank).map_or(0, |site| site.saturating_add(1));
        Shape {
            packet_bytes: self.options.packet_bytes,
            packets_per_segment: self.options.packets_per_segment,
            segments_in_flight: self.options.segments_in_flight,
            bounded: self.options.bounded.into(),
            sites: (0..self.place.ranks).map(site).collect(),
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
        let (theirs, ours) = (&info.shape, &self.shape());
        if theirs != ours {
            return Err(format!("it has options {theirs:?}, this rank {ours:?}"));
        }
        if peer == self.place.rank {
            return Ok(());
        }
        let infos = info.queue_pairs_to(self.place.rank)?;
        for (qp, info) in self.queue_pairs_to(peer).zip(infos) {
            let connected = self.endpoint.connect_qp(qp, &info);
            connected.map_err(|error| error.to_string())?;
        }
        self.open_lanes(peer).map_err(|error| error.to_string())
    }

    /// The queue pairs to a rank, in the order of their information.
    fn queue_pairs_to(&self, peer: usize) -> impl Iterator<Item = QueuePair> + use<F> {
        let exact = self.in_order.lanes[peer].as_ref().map(Lane::queue_pair);
        let bounded = self.in_order.bounded_lanes[peer].as_ref();
        let bounded = bounded.map(BoundedLane::queue_pair);
        let points = self.send_receive.lanes[peer].as_ref().map(Lane::queue_pair);
        let notes = self.peers.lane(peer).map(Lane::queue_pair);
        [exact, bounded, points, notes].into_iter().flatten()
    }

    /// Posts the receives of the lanes to a rank.
    fn open_lanes(&mut self, peer: usize) -> Result<(), farwrite::Error> {
        let endpoint = &mut self.endpoint;
        if let Some(lane) = &mut self.in_order.lanes[peer] {
            lane.open(endpoint)?;
        }
        if let Some(lane) = &mut self.in_order.bounded_lanes[peer] {
            lane.open(endpoint)?;
        }
        if let Some(lane) = &mut self.send_receive.lanes[peer] {
            lane.open(endpoint)?;
        }
        if let Some(lane) = self.peers.lane_mut(peer) {
            lane.open(endpoint)?;
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
        let plan = plan::plan(&self.place, operation, options, &buffers)?;
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
        if self.is_idle() {
            self.peers.note_moved(now_ns);
        }
        let point = plan.point;
        let execution = Execution::new([now_ns, timeout_ns], self.place.ranks, plan, buffers);
        match point {
            None => self.in_order.start(id, execution),
            Some(end) => self.send_receive.start(id, end, execution, &mut self.peers),
        }
        id
    }

    /// Whether no operation runs.
    fn is_idle(&self) -> bool {
        self.running().next().is_none()
    }

    fn running(&self) -> impl Iterator<Item = &Execution> {
        self.in_order.running().chain(self.send_receive.running())
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

    /// How often the bounded operations of this rank were cut, and what that cost; operations count
    /// that had a limit.
    pub fn tally(&self) -> Tally {
        self.in_order.tally()
    }

    /// Segments and notes that other ranks have not confirmed at `now_ns`, without those to ranks
    /// that have left, or that have not answered for a second. Once the group has ended, segments
    /// do not count.
    pub fn in_flight(&self, now_ns: u64) -> usize {
        let in_flight = |lanes: &[Option<Lane>], peer: usize| {
            let lane = lanes[peer].as_ref().filter(|_| self.data_matters);
            lane.map_or(0, Lane::in_flight)
        };
        let peers = (0..self.place.ranks).filter(|&peer| self.peers.is_there(peer, now_ns));
        let of_peer = peers.map(|peer| {
            in_flight(&self.in_order.lanes, peer)
                + in_flight(&self.send_receive.lanes, peer)
                + self.peers.in_flight(peer)
        });
        of_peer.sum()
    }

    /// Ends the group: every operation that runs or is started later fails with `error`, here and
    /// at all ranks that hear of it.
    pub fn fail(&mut self, error: CollectiveError) {
        self.data_matters = false;
        if self.failure.is_none() {
            // A rank that heard this from another rank does not pass it on: the other rank says it
            // to all. A rank that has left in good order has said nothing of the end.
            let own = self.place.rank;
            let ended_there = matches!(&error, CollectiveError::Ended { rank, .. }
                if *rank != own && self.peers.has_served(*rank).is_none());
            if !ended_there && self.connected {
                let reason = match &error {
                    CollectiveError::Ended { rank, reason } if *rank == own => reason.clone(),
                    error => error.to_string(),
                };
                self.peers.say_end(&reason);
            }
        }
        let error = self.failure.get_or_insert(error);
        let running = self.in_order.drain().chain(self.send_receive.drain());
        for (id, execution) in running {
            self.finished.push_back(Finished {
                id,
                result: Err(error.clone()),
                buffers: execution.into_buffers(),
            });
        }
    }

    /// Says to the other ranks that this one starts no more operations. Operations that run fail,
    /// and end the group at all ranks.
    pub fn leave(&mut self) {
        let error = CollectiveError::left(self.place.rank);
        if self.is_idle() && self.failure.is_none() {
            let started = self.in_order.started();
            if self.connected {
                self.peers.say_leave(started);
            }
            self.failure = Some(error);
        } else {
            self.fail(error);
        }
    }
}

/// A lane for each rank that has a queue pair.
fn lanes<L>(pairs: Vec<Option<QueuePair>>, lane: impl Fn(QueuePair) -> L) -> Vec<Option<L>> {
    pairs.into_iter().map(|qp| qp.map(&lane)).collect()
}

fn to_u16(rank: usize) -> u16 {
    u16::try_from(rank).expect("groups have at most MAX_RANKS ranks")
}
