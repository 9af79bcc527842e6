//! One rank of one group.

mod connecting;
mod polling;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use farwrite::{Endpoint, Fabric, QpOptions, QueuePair, SchemeName};
use farwrite_deadline::CutCounts;

use crate::bounded::measurements::GroupMeasurements;
use crate::bounded::open_records::OpenOperation;
use crate::bounded::qp::BoundedQp;
use crate::buffer::Buffers;
use crate::error::CollectiveError;
use crate::exact_qp::ExactQp;
use crate::execution::Execution;
use crate::group_view::GroupView;
use crate::in_order::OrderedOperations;
use crate::operation::Operation;
use crate::options::{CONTROLS_IN_FLIGHT, GroupOptions, OperationOptions};
use crate::peers::Peers;
use crate::plan::{self, Plan};
use crate::qp_buffers::Depth;
use crate::repair::Repair;
use crate::report::Report;
use crate::send_receive::SendsAndReceives;

/// After a group has ended, its ranks repair what operations that have ended still owe for this long.
pub(crate) const REPAIR_NS: u64 = 1_000_000_000;

/// What continues after another rank has ended the group.
#[derive(Clone, Copy, Debug)]
struct Finishing {
    /// Operations before this number had ended at the rank that ended the group. It still sends what they
    /// need, so they can end here too. Later ones have failed.
    before: u64,
    /// When those that still run fail.
    until_ns: u64,
}

/// Identifies an operation of a [`Member`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperationId(u64);

/// An operation that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The operation.
    pub id: OperationId,
    /// The outcome.
    pub result: Result<Report, CollectiveError>,
    /// The memory of the operation.
    pub buffers: Buffers,
}

/// One rank of one group, without its own clock, threads or sockets.
///
/// All ranks start the same collective operations in the same order. Several operations can be in
/// flight. Each one makes progress as far as its data allows. Between two ranks, data is sent in
/// the order of operations. An operation that fails, or that does not end by its timeout, ends the
/// group at this rank and at all ranks that it can reach: the ranks no longer agree on the next
/// operation.
pub struct Member<F: Fabric> {
    endpoint: Endpoint<F>,
    view: GroupView,
    options: GroupOptions,
    in_order: OrderedOperations,
    send_receive: SendsAndReceives,
    peers: Peers,
    connected: bool,
    /// The number of the next operation of this rank.
    next_id: u64,
    finished: VecDeque<Finished>,
    /// Why the group cannot continue.
    failure: Option<CollectiveError>,
    /// After another rank has ended the group: which operations may still end.
    finishing: Option<Finishing>,
    /// Whether this rank asks the others even if no operation runs.
    watches: bool,
}

impl<F: Fabric> Member<F> {
    /// Creates rank `rank` of `ranks`, over an endpoint that has no other user.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], [`CollectiveError::Endpoint`].
    pub fn new(
        mut endpoint: Endpoint<F>,
        rank: usize,
        ranks: usize,
        options: GroupOptions,
    ) -> Result<Self, CollectiveError> {
        options.check(rank, ranks)?;
        let mut pairs = |wanted: &QpOptions| -> Result<Vec<_>, farwrite::Error> {
            let mut pair = |_| endpoint.create_qp(wanted.clone());
            let pair = |peer| (peer != rank).then_some(peer).map(&mut pair).transpose();
            (0..ranks).map(pair).collect()
        };
        let (data, depth) = (options.queue_pair(), options.depth());
        let (bounded, control) = (options.bounded_queue_pair(), options.control_queue_pair());
        let bounded_qp = |qp| BoundedQp::new(qp, &bounded, depth.clone());
        let data_qp = |qp| ExactQp::new(qp, &data, depth.clone(), Repair::new(&options));
        let in_order = OrderedOperations::new(
            qps(pairs(&data)?, data_qp),
            qps(pairs(&bounded)?, bounded_qp),
            GroupMeasurements::new(options.bounded, options.packets_per_segment),
        );
        let send_receive = SendsAndReceives::new(qps(pairs(&data)?, data_qp));
        let control_qp = |qp| {
            let repair = Repair::Named(SchemeName::SrNack);
            ExactQp::new(
                qp,
                &control,
                Depth::fixed(CONTROLS_IN_FLIGHT as usize),
                repair,
            )
        };
        let peers = Peers::new(qps(pairs(&control)?, control_qp), options.dead_after);
        Ok(Self {
            endpoint,
            view: options.view(rank, ranks),
            options,
            in_order,
            send_receive,
            peers,
            connected: ranks == 1,
            next_id: 0,
            finished: VecDeque::new(),
            failure: None,
            finishing: None,
            watches: false,
        })
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.view.rank
    }

    /// The number of ranks in the group.
    pub fn ranks(&self) -> usize {
        self.view.ranks
    }

    /// The endpoint, to wait on or to inspect.
    pub fn endpoint_mut(&mut self) -> &mut Endpoint<F> {
        &mut self.endpoint
    }

    /// Starts an operation. [`Member::take_finished`] returns its buffers.
    ///
    /// # Errors
    /// [`CollectiveError::Argument`], [`CollectiveError::NotConnected`], or the reason why the
    /// group has ended. The buffers are dropped in these cases.
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
        match plan::plan(&self.view, operation, options, &buffers) {
            Ok(plan) => Ok(self.start_plan(now_ns, plan, options.timeout, buffers)),
            Err(error) => {
                if operation.is_collective() {
                    self.refuse(error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Notes that the next collective operation cannot start at this rank, for a reason that a
    /// caller has found. [`Member::start`] does so for invalid arguments. Ranks that wait for the
    /// operation fail with [`CollectiveError::Refused`] when they next ask, unless it has been
    /// started by then.
    pub fn refuse(&mut self, reason: String) {
        self.peers.refuse(reason);
    }

    /// Starts an operation that was planned for this rank. If the group cannot be used, the
    /// operation ends at once.
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
            self.note_moved(now_ns);
        }
        let point = plan.point;
        let scratch = &mut self.in_order.scratch;
        let times_ns = [now_ns, timeout_ns];
        let execution = Execution::new(times_ns, self.view.ranks, plan, buffers, scratch);
        match point {
            None => {
                self.peers.note_started();
                self.in_order.start(id, execution);
            }
            Some(end) => self.send_receive.start(id, end, execution, &mut self.peers),
        }
        id
    }

    /// Whether this rank asks the others for signs of life even if no operation runs, until the next call. A
    /// rank that waits for the others in some other way, such as to make another group, learns in
    /// this way that one of them is [dead](GroupOptions::dead_after).
    pub fn watch(&mut self, watches: bool) {
        self.watches = watches;
    }

    /// Whether the process of a rank has ended, so that the rank is dead at once.
    pub(crate) fn set_gone(&mut self, rank: usize, is_gone: bool) {
        self.peers.set_gone(rank, is_gone);
    }

    /// Why the group cannot continue; `None` while it can.
    pub fn failure(&self) -> Option<&CollectiveError> {
        self.failure.as_ref()
    }

    /// Whether no operation is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.running().next().is_none()
    }

    /// When data last moved.
    pub(crate) fn moved_ns(&self) -> u64 {
        self.peers.moved_ns()
    }

    /// Notes that data moved, which postpones the questions to other ranks. If a record has been
    /// missing for long, the questions are not postponed.
    fn note_moved(&mut self, now_ns: u64) {
        let every_ns = self.peers.ask_every_ns(self.wait_ns());
        let is_old = |open: &OpenOperation| now_ns.saturating_sub(open.started_ns) >= every_ns;
        if !self.in_order.records.ended().next().is_some_and(is_old) {
            self.peers.note_moved(now_ns);
        }
    }

    fn running(&self) -> impl Iterator<Item = &Execution> {
        self.in_order.running().chain(self.send_receive.running())
    }

    /// Why no operation can start.
    fn unusable(&self) -> Option<CollectiveError> {
        let not_connected = (!self.connected).then_some(CollectiveError::NotConnected);
        self.failure.clone().or(not_connected)
    }

    /// Removes and returns the operation that ended first.
    pub fn take_finished(&mut self) -> Option<Finished> {
        self.finished.pop_front()
    }

    /// How often a deadline cut the bounded operations of this rank, and how much data that cost.
    /// Only operations that had a limit count.
    pub fn cut_counts(&self) -> CutCounts {
        self.in_order.cut_counts()
    }

    /// The number of segments and control messages that other ranks have not confirmed at `now_ns`,
    /// and of messages of bounded operations that have not left this rank. Messages to ranks that
    /// have left the group, or that have not answered for one second, do not count.
    pub fn in_flight(&self, now_ns: u64) -> usize {
        let in_flight = |qps: &[Option<ExactQp>], peer: usize| {
            let qp = qps[peer].as_ref();
            qp.map_or(0, ExactQp::in_flight)
        };
        let peers = (0..self.view.ranks).filter(|&peer| self.peers.is_there(peer, now_ns));
        let of_peer = peers.map(|peer| {
            in_flight(&self.in_order.qps, peer)
                + self.in_order.bounded_in_flight(peer)
                + in_flight(&self.send_receive.qps, peer)
                + self.peers.in_flight(peer)
        });
        of_peer.sum()
    }

    /// Ends the group. Every operation that runs or is started later fails with `error` here. All ranks
    /// that receive this error fail, too, except in operations that have ended here: what these still
    /// owe continues to be sent, and other ranks wait for it for up to one second.
    pub fn fail(&mut self, error: CollectiveError) {
        if self.failure.is_none() && self.connected {
            let reason = match &error {
                CollectiveError::Ended { rank, reason } if *rank == self.view.rank => {
                    reason.clone()
                }
                error => error.to_string(),
            };
            let unsent = (0..self.view.ranks).map(|peer| self.send_receive.unsent(peer));
            let unsent: Vec<_> = unsent.collect();
            self.peers
                .queue_end(self.in_order.oldest(), &unsent, &reason);
        }
        self.finishing = None;
        let error = self.failure.get_or_insert(error);
        let running = self.in_order.drain().chain(self.send_receive.drain());
        self.finished.extend(failed(running, error));
    }

    /// Ends the group after an error of [`Member::progress`].
    fn end(&mut self, error: CollectiveError, now_ns: u64) {
        let before = match &error {
            CollectiveError::Ended { rank, .. } if *rank != self.view.rank => {
                self.peers.ended_before(*rank)
            }
            _ => None,
        };
        let Some(before) = before else {
            return self.fail(error);
        };
        // The rank that ended the group informs all others.
        if self.failure.is_some() && self.finishing.is_none() {
            return;
        }
        let until_ns = now_ns.saturating_add(REPAIR_NS);
        let finishing = self.finishing.get_or_insert(Finishing { before, until_ns });
        finishing.before = finishing.before.min(before);
        let error = self.failure.get_or_insert(error);
        let drained = self.in_order.drain_from(finishing.before);
        self.finished.extend(failed(drained, error));
        self.fail_points_after_end();
    }

    /// After another rank has ended the group: ends sends and receives, except receives of what that rank
    /// had sent before.
    fn fail_points_after_end(&mut self) {
        if let (Some(error), Some(_)) = (&self.failure, self.finishing) {
            let drained = self.send_receive.drain_after_end(&self.peers);
            self.finished.extend(failed(drained, error));
        }
    }

    /// Informs the other ranks that this rank starts no more operations. Operations that run fail,
    /// and end the group at all ranks.
    pub fn leave(&mut self) {
        // What was sent must still arrive, and a second call would give it up.
        if self.failure.is_some() {
            return;
        }
        let error = CollectiveError::left(self.view.rank);
        if self.is_idle() {
            let started = self.in_order.started();
            if self.connected {
                self.peers.queue_leave(started);
            }
            self.failure = Some(error);
        } else {
            self.fail(error);
        }
    }
}

/// The ends of operations that fail with this error.
fn failed(
    running: impl Iterator<Item = (OperationId, Execution)>,
    error: &CollectiveError,
) -> impl Iterator<Item = Finished> {
    running.map(|(id, execution)| Finished {
        id,
        result: Err(error.clone()),
        buffers: execution.into_buffers(),
    })
}

/// Wraps the queue pair to each rank that has one.
fn qps<Q>(pairs: Vec<Option<QueuePair>>, new: impl Fn(QueuePair) -> Q) -> Vec<Option<Q>> {
    pairs.into_iter().map(|qp| qp.map(&new)).collect()
}
