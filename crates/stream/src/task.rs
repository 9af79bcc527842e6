//! The part of a stream that the thread of its endpoint runs.

use std::sync::Arc;

use farwrite::{Endpoint, QueuePair, RealTime, TaskState};

use crate::byte_stream;
use crate::cutover::StreamCutover;
use crate::error::Error;
use crate::shared::Shared;

/// How long a queue pair stays after both directions have ended (P13.5): this time, and as many
/// round trips.
const LINGER_NS: u64 = 500_000_000;
const LINGER_ROUND_TRIPS: u64 = 4;
/// How long a stream that its user has dropped waits for a peer that does nothing: neither ends its
/// direction nor takes bytes.
const DROPPED_NS: u64 = 60_000_000_000;

/// The time between two attempts to free memory that the fabric still uses.
const RELEASE_NS: u64 = 1_000_000;

/// Moves the bytes of a [`Stream`](crate::Stream). Whoever polls the endpoint runs it after each poll
/// that may concern its queue pair, for example as a task of a
/// [`ProgressThread`](farwrite::ProgressThread::add_task_of).
///
/// When it is dropped before the stream has ended, the calls on the stream fail with
/// [`Error::Ended`].
pub struct StreamTask {
    shared: Arc<Shared>,
    /// When both directions had ended.
    over_ns: Option<u64>,
    /// Since when nothing has happened on a dropped stream.
    quiet_ns: Option<u64>,
    /// The stream is over and its user has dropped it: the queue pair only answers late packets.
    pub(crate) is_retired: bool,
    /// The queue pair was destroyed, and its memory is being given back.
    is_destroyed: bool,
}

impl StreamTask {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            over_ns: None,
            quiet_ns: None,
            is_retired: false,
            is_destroyed: false,
        }
    }

    /// Returns the queue pair of the stream. Once the stream is over, the task destroys it.
    #[must_use]
    pub fn queue_pair(&self) -> QueuePair {
        self.shared.queue_pair()
    }

    /// What lets the stream go on over another queue pair of its connection.
    pub(crate) fn cutover(&self) -> StreamCutover {
        let shared = Arc::clone(&self.shared);
        StreamCutover { shared, cut: None }
    }

    /// Ends the stream with the connection, unless it has ended. What has arrived before can be read.
    pub(crate) fn fail<F: RealTime>(&self, endpoint: &mut Endpoint<F>, error: &Error) {
        self.shared.receiver.lock().half.take_whole(endpoint);
        self.shared.fail(error);
    }

    /// Does what is due after a poll.
    pub fn run<F: RealTime>(&mut self, endpoint: &mut Endpoint<F>) -> TaskState {
        if self.is_destroyed {
            return self.release(endpoint);
        }
        let mut receiver = self.shared.receiver.lock();
        let mut sender = self.shared.sender.lock();
        if sender.half.waits_for_cutover {
            return TaskState::Idle;
        }
        let qp = sender.half.qp;
        let changed = byte_stream::progress(&mut sender.half, &mut receiver.half, endpoint);
        let is_over = receiver.half.is_over() && sender.half.is_over();
        let is_dropped = receiver.is_dropped && sender.is_dropped;
        if changed {
            self.quiet_ns = None;
            self.shared.sender.notify(sender);
            // A buffer that was posted is nothing to read.
            if receiver.half.is_readable() {
                self.shared.receiver.notify(receiver);
            }
            return TaskState::Worked;
        }
        drop(receiver);
        let now_ns = endpoint.fabric().now_ns();
        if !is_over && is_dropped {
            let since_ns = *self.quiet_ns.get_or_insert(now_ns);
            let end_ns = since_ns.saturating_add(DROPPED_NS);
            if now_ns < end_ns {
                return TaskState::Until(end_ns);
            }
        } else if !is_over {
            // No event of the queue pair says when the fabric holds none of its memory any more.
            let again = sender.half.holds_memory();
            return match again {
                true => TaskState::Until(now_ns.saturating_add(RELEASE_NS)),
                false => TaskState::Idle,
            };
        }
        self.is_retired = is_dropped;
        let rtt_ns = endpoint.qp_stats(qp).map_or(0, |stats| stats.rtt_ns);
        let end_ns = self.over_ns.get_or_insert(now_ns).saturating_add(LINGER_NS);
        let end_ns = end_ns.saturating_add(rtt_ns.saturating_mul(LINGER_ROUND_TRIPS));
        if now_ns < end_ns {
            return TaskState::Until(end_ns);
        }
        if sender.is_settled {
            drop(sender);
        } else {
            sender.is_settled = true;
            self.shared.sender.notify(sender);
        }
        if !is_dropped {
            return TaskState::Idle;
        }
        // The queue pair may have been destroyed by others.
        let _ = endpoint.destroy_qp(qp);
        self.is_destroyed = true;
        self.release(endpoint)
    }

    fn release<F: RealTime>(&self, endpoint: &mut Endpoint<F>) -> TaskState {
        let mut receiver = self.shared.receiver.lock();
        let mut sender = self.shared.sender.lock();
        match byte_stream::release(&mut sender.half, &mut receiver.half, endpoint) {
            0 => TaskState::Done,
            _ => TaskState::Until(endpoint.fabric().now_ns().saturating_add(RELEASE_NS)),
        }
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        self.shared.fail(&Error::Ended);
    }
}
