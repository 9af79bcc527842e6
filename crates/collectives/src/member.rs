//! One rank of one group.

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::{Endpoint, Fabric, QpOptions};

use crate::buffer::Buffers;
use crate::collectives::Collectives;
use crate::error::CollectiveError;
use crate::execution::Execution;
use crate::info::{MAX_RANKS, MemberInfo, Shape};
use crate::lane::Lane;
use crate::note::Note;
use crate::operation::Operation;
use crate::options::{GroupOptions, NOTES_IN_FLIGHT, OperationOptions};
use crate::plan::{self, Place, Plan};
use crate::point::Points;
use crate::report::Report;
use crate::watch::Watch;

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
/// All ranks start the same collective operations in the same order. Several can be in flight: each
/// makes progress as far as its data allows, and between two ranks data goes in the order of
/// operations. An operation that fails, or that does not end by its deadline, ends the group, at
/// this rank and at all that it reaches: the ranks no longer agree on what comes next.
pub struct Member<F: Fabric> {
    endpoint: Endpoint<F>,
    place: Place,
    options: GroupOptions,
    collectives: Collectives,
    points: Points,
    watch: Watch,
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
        if let Some((argument, value, expected)) = options.problem() {
            return Err(wrong(argument, value, expected));
        }
        let mut lanes = |wanted: &QpOptions, depth: u32| -> Result<Vec<_>, farwrite::Error> {
            let bytes = usize::try_from(wanted.sdr.max_message_bytes).unwrap_or(usize::MAX);
            let mut lane = |_| {
                let qp = endpoint.create_qp(wanted.clone())?;
                Ok(Lane::new(qp, wanted.expected_scheme, bytes, depth as usize))
            };
            let lane = |peer| (peer != rank).then_some(peer).map(&mut lane).transpose();
            (0..ranks).map(lane).collect()
        };
        let (data, depth) = (options.queue_pair(), options.segments_in_flight);
        let collectives = Collectives::new(lanes(&data, depth)?);
        let points = Points::new(lanes(&data, depth)?);
        let watch = Watch::new(lanes(&options.note_queue_pair(), NOTES_IN_FLIGHT)?);
        Ok(Self {
            endpoint,
            place: Place { rank, ranks },
            options,
            collectives,
            points,
            watch,
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
    pub fn info(&mut self) -> Result<Vec<u8>, CollectiveError> {
        let mut queue_pairs = Vec::new();
        for peer in 0..self.place.ranks {
            for lane in lanes_to(
                &mut self.collectives,
                &mut self.points,
                &mut self.watch,
                peer,
            ) {
                let info = self.endpoint.qp_info(lane.queue_pair())?.encode();
                queue_pairs.push(info.map_err(|error| CollectiveError::Info {
                    rank: self.place.rank,
                    problem: error.to_string(),
                })?);
            }
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
        if peer == self.place.rank {
            return Ok(());
        }
        let infos = info.queue_pairs_to(self.place.rank)?;
        let lanes = lanes_to(
            &mut self.collectives,
            &mut self.points,
            &mut self.watch,
            peer,
        );
        for (lane, info) in lanes.zip(infos) {
            let connected = self.endpoint.connect_qp(lane.queue_pair(), &info);
            let opened = connected.and_then(|()| lane.open(&mut self.endpoint));
            opened.map_err(|error| error.to_string())?;
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
        if self.is_idle() {
            self.watch.note_moved(now_ns);
        }
        let point = plan.point;
        let execution = Execution::new([now_ns, timeout_ns], self.place.ranks, plan, buffers);
        match point {
            None => self.collectives.start(id, execution),
            Some(end) => self.points.start(id, end, execution, &mut self.watch),
        }
        id
    }

    /// Whether no operation runs.
    fn is_idle(&self) -> bool {
        self.running().next().is_none()
    }

    fn running(&self) -> impl Iterator<Item = &Execution> {
        self.collectives.running().chain(self.points.running())
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
        let polled = match self.endpoint.poll(now_ns) {
            Ok(next_ns) => next_ns,
            Err(error) => {
                self.fail(error.into());
                return None;
            }
        };
        let moved = match self.progress(now_ns) {
            Ok(moved) => moved,
            Err(error) => {
                let is_first = self.failure.is_none();
                self.fail(error);
                is_first
            }
        };
        // What was sent leaves with the next poll.
        let again = moved.then_some(now_ns);
        let deadline = self.running().map(Execution::deadline_ns).min();
        let ask = (!self.is_idle()).then(|| self.watch.ask(now_ns, self.wait_ns()));
        let next = [polled, again, deadline, ask];
        next.into_iter().flatten().min()
    }

    /// The shortest time that an operation which runs may take.
    fn wait_ns(&self) -> u64 {
        let waits = self.running().map(|execution| execution.timeout_ns);
        waits.min().unwrap_or(u64::MAX)
    }

    /// Segments and notes that other ranks have not confirmed, without those to ranks that have
    /// left or do not answer. Once the group has ended, segments do not count.
    pub fn in_flight(&self) -> usize {
        let in_flight = |lanes: &[Option<Lane>], peer: usize| {
            let lane = lanes[peer].as_ref().filter(|_| self.data_matters);
            lane.map_or(0, Lane::in_flight)
        };
        let peers = (0..self.place.ranks).filter(|&peer| self.watch.is_there(peer));
        let of_peer = peers.map(|peer| {
            in_flight(&self.collectives.lanes, peer)
                + in_flight(&self.points.lanes, peer)
                + self.watch.in_flight(peer)
        });
        of_peer.sum()
    }

    /// Ends the group: every operation that runs or is started later fails with `error`, here and
    /// at all ranks that hear of it.
    pub fn fail(&mut self, error: CollectiveError) {
        self.data_matters = false;
        if self.failure.is_none() {
            // Who has heard it from another rank does not pass it on: that rank says it to all.
            let ended_there = matches!(&error, CollectiveError::Ended { rank, .. }
                if *rank != self.place.rank);
            if !ended_there && self.connected {
                let reason = error.to_string();
                self.watch.say_to_all(&Note::End { reason });
            }
        }
        let error = self.failure.get_or_insert(error);
        let running = self.collectives.drain().chain(self.points.drain());
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
        let rank = self.place.rank;
        let reason = "it has left".to_owned();
        if self.is_idle() && self.failure.is_none() {
            let started = self.collectives.started();
            if self.connected {
                self.watch.say_to_all(&Note::Leave { started });
            }
            self.failure = Some(CollectiveError::Ended { rank, reason });
        } else {
            self.fail(CollectiveError::Ended { rank, reason });
        }
    }

    /// Passes on what can be. Returns whether it did anything.
    fn progress(&mut self, now_ns: u64) -> Result<bool, CollectiveError> {
        let started = self.collectives.started();
        let noted = self.watch.progress(&mut self.endpoint, started)?;
        let ranks = self.place.ranks;
        for lanes in [&mut self.collectives.lanes, &mut self.points.lanes] {
            for (rank, lane) in lanes.iter_mut().enumerate() {
                if let Some(lane) = lane {
                    let broken = |problem| CollectiveError::Connection { rank, problem };
                    lane.reclaim().map_err(broken)?;
                    lane.post(&mut self.endpoint)?;
                }
            }
        }
        if self.failure.is_some() {
            return Ok(noted);
        }
        self.points.match_sends(&mut self.watch)?;
        let most = self.options.payload_bytes();
        let mut segments = 0;
        loop {
            let before = segments;
            segments += self.collectives.progress(&mut self.endpoint, most)?;
            for peer in 0..ranks {
                segments += usize::from(self.points.receive(&mut self.endpoint, peer)?);
                segments += usize::from(self.points.send(&mut self.endpoint, peer, most)?);
            }
            if segments == before || segments >= SEGMENTS_A_POLL {
                break;
            }
        }
        if segments > 0 {
            self.watch.note_moved(now_ns);
        }
        self.end_operations(now_ns)?;
        Ok(noted || segments > 0)
    }

    /// Ends operations that are done, and the group if a deadline has come.
    fn end_operations(&mut self, now_ns: u64) -> Result<(), CollectiveError> {
        let Self {
            collectives,
            points,
            ..
        } = self;
        while let Some((id, done)) = collectives.take_done().or_else(|| points.take_done()) {
            let (report, buffers) = done.finish(now_ns);
            let result = Ok(report);
            self.finished.push_back(Finished {
                id,
                result,
                buffers,
            });
        }
        let newest = self.collectives.running().last();
        if let Some(rank) = newest.and_then(|newest| self.watch.left_before(newest.number)) {
            let reason = "it has left".into();
            return Err(CollectiveError::Ended { rank, reason });
        }
        let late = self.running().find(|e| e.deadline_ns() <= now_ns);
        late.map_or(Ok(()), |late| Err(self.timed_out(late, now_ns)))
    }

    /// The error of an operation whose deadline has come.
    fn timed_out(&self, late: &Execution, now_ns: u64) -> CollectiveError {
        let number = (!late.is_point()).then_some(late.number);
        let culprit = self.watch.culprit(now_ns, number);
        let (rank, state) = culprit.unwrap_or_else(|| {
            let waits_for = late.waits_for().unwrap_or(self.place.rank);
            (waits_for, "has not sent or taken all of its data")
        });
        CollectiveError::Timeout {
            operation: late.number,
            name: late.name(),
            after: Duration::from_nanos(late.timeout_ns),
            rank,
            state: state.to_owned(),
        }
    }
}

/// The lanes to a rank, in the order of its information.
fn lanes_to<'a>(
    collectives: &'a mut Collectives,
    points: &'a mut Points,
    watch: &'a mut Watch,
    peer: usize,
) -> impl Iterator<Item = &'a mut Lane> {
    let data = [&mut collectives.lanes[peer], &mut points.lanes[peer]];
    let data = data.into_iter().filter_map(Option::as_mut);
    data.chain(watch.lane_mut(peer))
}

fn to_u16(rank: usize) -> u16 {
    u16::try_from(rank).expect("groups have at most MAX_RANKS ranks")
}
