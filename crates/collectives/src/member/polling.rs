//! The work that a member does in each poll.

use std::time::Duration;

use farwrite::{Fabric, RealTime};

use super::{Finished, Member};
use crate::bounded::open_records::{MOST_OPEN, OpenOperation};
use crate::error::{CollectiveError, RankState};
use crate::exact_qp::ExactQp;
use crate::execution::Execution;
use crate::operation::name;
use crate::peers::Dead;
use crate::report::PeerReport;

/// The maximum number of segments that a poll processes, so that packets do not wait for long.
const SEGMENTS_A_POLL: usize = 16;

impl<F: RealTime> Member<F> {
    /// The same as [`poll`](Self::poll), by the clock of the fabric.
    pub fn poll_now(&mut self) -> Option<u64> {
        let polled = self.endpoint.poll_now();
        let now_ns = self.endpoint.fabric().now_ns();
        self.advance(now_ns, polled)
    }
}

impl<F: Fabric> Member<F> {
    /// Processes what has arrived and sends what is ready, at `now_ns`. The time must not run
    /// backward. Returns when to call again at the latest if nothing arrives earlier; `None` if
    /// only an arrival can cause more work. Call it also after [`Member::start`].
    ///
    /// An error of the group ends all of its operations with that error. It is not returned here.
    pub fn poll(&mut self, now_ns: u64) -> Option<u64> {
        let polled = self.endpoint.poll(now_ns);
        self.advance(now_ns, polled)
    }

    /// Does everything that follows a poll of the endpoint.
    fn advance(
        &mut self,
        now_ns: u64,
        polled: Result<Option<u64>, farwrite::Error>,
    ) -> Option<u64> {
        if self.finishing.is_some_and(|f| f.until_ns <= now_ns)
            && let Some(error) = self.failure.clone()
        {
            self.fail(error);
        }
        let polled = match polled {
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
                self.end(error, now_ns);
                is_first || self.finishing.is_some()
            }
        };
        // The next poll sends the queued data.
        let again = moved.then_some(now_ns);
        let running = self.running().map(Execution::deadline_ns);
        let records = self.in_order.records.ended();
        let deadline = running.chain(records.map(OpenOperation::deadline_ns)).min();
        let ask = self.needs_others();
        let ask = ask.then(|| self.peers.ask(now_ns, self.wait_ns()));
        let limits = [self.in_order.limit_ns(), self.finishing.map(|f| f.until_ns)];
        let next = [polled, again, deadline, ask].into_iter().chain(limits);
        next.flatten().min()
    }

    /// Whether this rank waits for other ranks, so that it asks them.
    pub(crate) fn needs_others(&self) -> bool {
        let has_open = || self.in_order.records.ended().next().is_some();
        self.failure.is_none() && (self.watches || !self.is_idle() || has_open())
    }

    /// A dead rank whose death ends the group. If this rank only receives from any rank, that is a rank that sends,
    /// or else the last one.
    fn fatal_death(&mut self, now_ns: u64) -> Option<Dead> {
        if !self.needs_others() {
            // Nobody looks at the ranks meanwhile.
            self.peers.forget_gone();
            return None;
        }
        let dead = self.peers.dead(now_ns);
        let has_open = self.in_order.records.ended().next().is_some();
        let needs_all = self.watches || has_open || !self.running().all(Execution::is_from_any);
        let is_fatal = needs_all || dead.len() == self.peers.remaining().count();
        let sends = |rank: usize| {
            self.running()
                .any(|execution| execution.receives_from(rank))
        };
        let mut dead = dead.into_iter();
        dead.find(|dead| is_fatal || sends(dead.rank))
    }

    /// The shortest timeout of the operations that are not over.
    pub(super) fn wait_ns(&self) -> u64 {
        let running = self.running().map(|execution| execution.timeout_ns);
        let records = self.in_order.records.ended().map(|open| open.timeout_ns);
        running.chain(records).min().unwrap_or(u64::MAX)
    }

    /// Processes everything that can make progress. Returns whether it did anything.
    fn progress(&mut self, now_ns: u64) -> Result<bool, CollectiveError> {
        let started = self.in_order.started();
        let mut moved = self.peers.progress(&mut self.endpoint, now_ns, started)?;
        let ranks = self.view.ranks;
        for qps in [&mut self.in_order.qps, &mut self.send_receive.qps] {
            for (rank, qp) in qps.iter_mut().enumerate() {
                if let Some(qp) = qp {
                    let broken = |problem| CollectiveError::Connection { rank, problem };
                    qp.reclaim().map_err(broken)?;
                    moved |= qp.post(&mut self.endpoint, now_ns)?;
                }
            }
        }
        if self.failure.is_some() && self.finishing.is_none() {
            // Nothing reads further records and offers.
            self.peers.take_records();
            self.peers.take_offers();
            // Other ranks still wait for the data of operations that have ended here.
            let sent = self.in_order.tend(&mut self.endpoint, now_ns)?;
            return Ok(moved || sent);
        }
        for (rank, record) in self.peers.take_records() {
            self.in_order.records.add(rank, record)?;
        }
        moved |= self.in_order.process_records()?;
        self.send_receive.choose_senders(&mut self.peers);
        self.send_receive.match_sends(&mut self.peers)?;
        let most = self.options.payload_bytes();
        let collected = self.in_order.collect(&mut self.endpoint, now_ns)?;
        for record in self.in_order.take_own_records(self.view.rank)? {
            self.peers.queue_record(record);
            moved = true;
        }
        let mut segments = usize::from(collected);
        loop {
            let before = segments;
            segments += self.in_order.progress(&mut self.endpoint, most, now_ns)?;
            for peer in 0..ranks {
                let endpoint = &mut self.endpoint;
                // After the end of the group, segments of receives that have failed can follow.
                if self.failure.is_none() || self.send_receive.receives_from(peer) {
                    segments += usize::from(self.send_receive.receive(endpoint, peer, now_ns)?);
                }
                segments += usize::from(self.send_receive.send(&mut self.endpoint, peer, most)?);
            }
            if segments == before || segments >= SEGMENTS_A_POLL {
                break;
            }
        }
        if segments > 0 {
            self.note_moved(now_ns);
            self.note_heard(now_ns);
        }
        // Operations that waited for a place can begin in the next poll.
        let ended = self.end_operations(now_ns)?;
        Ok(moved || segments > 0 || ended)
    }

    /// Notes which ranks the segments come from that were processed.
    fn note_heard(&mut self, now_ns: u64) {
        for qps in [&mut self.in_order.qps, &mut self.send_receive.qps] {
            for (rank, qp) in qps.iter_mut().enumerate() {
                if qp.as_mut().is_some_and(ExactQp::was_heard) {
                    self.peers.note_heard(rank, now_ns);
                }
            }
        }
    }

    /// Ends operations that are done, and ends the group if a timeout has passed. Returns whether an
    /// operation has ended.
    fn end_operations(&mut self, now_ns: u64) -> Result<bool, CollectiveError> {
        let mut ended = false;
        while let Some((id, done)) = self
            .in_order
            .take_done()
            .or_else(|| self.send_receive.take_done())
        {
            ended = true;
            let peers = self.peer_reports(&done);
            let (report, buffers) = done.finish(now_ns, peers, &mut self.in_order.scratch);
            let result = Ok(report);
            self.finished.push_back(Finished {
                id,
                result,
                buffers,
            });
        }
        self.fail_points_after_end();
        let newest = self.in_order.newest();
        let left = newest.and_then(|newest| self.peers.left_before(newest));
        let refused = newest.and_then(|newest| self.peers.refused_by(newest));
        if let Some((rank, operation, reason)) = refused {
            let reason = reason.to_owned();
            return Err(CollectiveError::Refused {
                operation,
                rank,
                reason,
            });
        }
        if let Some(rank) = left.or_else(|| self.send_receive.waits_for_left(&self.peers)) {
            return Err(CollectiveError::left(rank));
        }
        if let Some(Dead {
            rank,
            heard,
            is_gone,
        }) = self.fatal_death(now_ns)
        {
            let limit = self.options.dead_after;
            return Err(match is_gone {
                true => CollectiveError::Gone { rank, heard },
                false => CollectiveError::Silent { rank, heard, limit },
            });
        }
        let late = self.running().find(|e| e.deadline_ns() <= now_ns);
        late.map_or(Ok(()), |late| Err(self.timed_out(late, now_ns)))?;
        self.check_records(now_ns)?;
        Ok(ended)
    }

    /// What was measured of the ranks that an operation exchanges segments with. A rank whose queue
    /// pair is broken is left out: that must not lose the operation.
    fn peer_reports(&self, done: &Execution) -> Vec<PeerReport> {
        let qps = match done.is_point() {
            true => &self.send_receive.qps,
            false => &self.in_order.qps,
        };
        let mut reports = Vec::new();
        let mut partners = done.partners();
        if partners.is_empty() && !done.is_point() {
            // A bounded operation without an exact phase exchanges data with all.
            partners = (0..self.view.ranks).collect();
        }
        for rank in partners {
            let Some(qp) = qps[rank].as_ref().map(ExactQp::queue_pair) else {
                continue;
            };
            let (Ok(stats), Ok(peer)) = (self.endpoint.qp_stats(qp), self.endpoint.peer_stats(qp))
            else {
                continue;
            };
            let loss = stats.send_loss;
            // The pace of an adaptive controller changes all the time, but its learned rate does not.
            let learned = peer.learned.map(|learned| learned.rate_bps);
            reports.push(PeerReport {
                rank,
                rtt: Duration::from_nanos(peer.rtt_ns),
                rate_bps: learned.unwrap_or(peer.pace_bps),
                judged_chunks: loss.judged_chunks(),
                lost_chunks: loss.lost_chunks(),
            });
        }
        reports
    }

    /// Ends the group if a rank owes a record for too long, or too many.
    fn check_records(&self, now_ns: u64) -> Result<(), CollectiveError> {
        let mut ended = self.in_order.records.ended();
        if let Some(late) = ended.find(|open| open.deadline_ns() <= now_ns) {
            let ((rank, state), others) = self.culprits(now_ns, Some(late.number), &[]);
            return Err(CollectiveError::Timeout {
                operation: Some(late.number),
                name: name(late.descriptor.operation),
                after: Duration::from_nanos(late.timeout_ns),
                rank,
                state,
                others,
            });
        }
        let mut ended = self.in_order.records.ended();
        let (first, later) = (ended.next(), ended.count());
        let Some(first) = first.filter(|_| later >= MOST_OPEN) else {
            return Ok(());
        };
        let ((rank, state), _) = self.culprits(now_ns, Some(first.number), &[]);
        Err(CollectiveError::Behind {
            rank,
            state,
            operation: first.number,
            name: name(first.descriptor.operation),
            operations: later,
        })
    }

    /// The error of an operation whose timeout has passed.
    fn timed_out(&self, late: &Execution, now_ns: u64) -> CollectiveError {
        let number = (!late.is_point()).then_some(late.number);
        let ((rank, state), others) = self.culprits(now_ns, number, &self.waits_for(late));
        CollectiveError::Timeout {
            operation: number,
            name: late.name(),
            after: Duration::from_nanos(late.timeout_ns),
            rank,
            state,
            others,
        }
    }

    /// The ranks that an operation waits for.
    fn waits_for(&self, execution: &Execution) -> Vec<usize> {
        match execution.waits_for_any() {
            true => self.peers.remaining().collect(),
            false => execution.waits_for().into_iter().collect(),
        }
    }

    /// The rank that delays an operation, and its state, and then further ones. `number` is that of a
    /// collective operation. If no rank is known to be the cause, it is one of `waits_for`, or one that owes
    /// a record.
    fn culprits(
        &self,
        now_ns: u64,
        number: Option<u64>,
        waits_for: &[usize],
    ) -> ((usize, RankState), Vec<(usize, RankState)>) {
        let own = self.view.rank;
        let open = number.and_then(|number| self.in_order.records.get(number));
        let owes = open.and_then(|open| open.lacks_other_than(own));
        let mut culprits = self.peers.culprits(now_ns, self.wait_ns(), number);
        if culprits.is_empty() {
            let ranks = match waits_for {
                [] => vec![owes.unwrap_or(own)],
                ranks => ranks.to_vec(),
            };
            culprits.extend(ranks.into_iter().map(|rank| (rank, RankState::DataMissing)));
        }
        (culprits.remove(0), culprits)
    }
}
