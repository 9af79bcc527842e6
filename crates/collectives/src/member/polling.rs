//! The work that a member does in each poll.

use std::time::Duration;

use farwrite::{Fabric, RealTime};

use super::{Finished, Member};
use crate::error::{CollectiveError, RankState};
use crate::execution::Execution;

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
                self.fail(error);
                is_first
            }
        };
        // The next poll sends the queued data.
        let again = moved.then_some(now_ns);
        let deadline = self.running().map(Execution::deadline_ns).min();
        let ask = (!self.is_idle()).then(|| self.peers.ask(now_ns, self.wait_ns()));
        let next = [polled, again, deadline, ask, self.in_order.limit_ns()];
        next.into_iter().flatten().min()
    }

    /// The shortest timeout of the running operations.
    fn wait_ns(&self) -> u64 {
        let waits = self.running().map(|execution| execution.timeout_ns);
        waits.min().unwrap_or(u64::MAX)
    }

    /// Processes everything that can make progress. Returns whether it did anything.
    fn progress(&mut self, now_ns: u64) -> Result<bool, CollectiveError> {
        let started = self.in_order.started();
        let mut moved = self.peers.progress(&mut self.endpoint, started)?;
        let ranks = self.view.ranks;
        for qps in [&mut self.in_order.qps, &mut self.send_receive.qps] {
            for (rank, qp) in qps.iter_mut().enumerate() {
                if let Some(qp) = qp {
                    let broken = |problem| CollectiveError::Connection { rank, problem };
                    qp.reclaim().map_err(broken)?;
                    moved |= qp.post(&mut self.endpoint)?;
                }
            }
        }
        if self.failure.is_some() {
            return Ok(moved);
        }
        self.send_receive.match_sends(&mut self.peers)?;
        let most = self.options.payload_bytes();
        let collected = self.in_order.collect(&mut self.endpoint, now_ns)?;
        let mut segments = usize::from(collected);
        loop {
            let before = segments;
            segments += self.in_order.progress(&mut self.endpoint, most)?;
            for peer in 0..ranks {
                segments += usize::from(self.send_receive.receive(&mut self.endpoint, peer)?);
                segments += usize::from(self.send_receive.send(&mut self.endpoint, peer, most)?);
            }
            if segments == before || segments >= SEGMENTS_A_POLL {
                break;
            }
        }
        if segments > 0 {
            self.peers.note_moved(now_ns);
        }
        self.end_operations(now_ns)?;
        Ok(moved || segments > 0)
    }

    /// Ends operations that are done, and ends the group if a deadline has passed.
    fn end_operations(&mut self, now_ns: u64) -> Result<(), CollectiveError> {
        let Self {
            in_order,
            send_receive,
            ..
        } = self;
        while let Some((id, done)) = in_order.take_done().or_else(|| send_receive.take_done()) {
            let (report, buffers) = done.finish(now_ns, &mut in_order.scratch);
            let result = Ok(report);
            self.finished.push_back(Finished {
                id,
                result,
                buffers,
            });
        }
        let newest = self.in_order.running().last();
        let left = newest.and_then(|newest| self.peers.left_before(newest.number));
        let refused = newest.and_then(|newest| self.peers.refused_by(newest.number));
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
        let late = self.running().find(|e| e.deadline_ns() <= now_ns);
        late.map_or(Ok(()), |late| Err(self.timed_out(late, now_ns)))
    }

    /// The error of an operation whose deadline has passed.
    fn timed_out(&self, late: &Execution, now_ns: u64) -> CollectiveError {
        let number = (!late.is_point()).then_some(late.number);
        let culprit = self.peers.culprit(now_ns, self.wait_ns(), number);
        let (rank, state) = culprit.unwrap_or_else(|| {
            let waits_for = late.waits_for().unwrap_or(self.view.rank);
            (waits_for, RankState::DataMissing)
        });
        CollectiveError::Timeout {
            operation: late.number,
            name: late.name(),
            after: Duration::from_nanos(late.timeout_ns),
            rank,
            state,
        }
    }
}
