//! The queue between the owner of a port and the thread that sends its packets.
//!
//! The owner appends jobs and takes what has become of them. The thread takes one job at a time. One mutex
//! protects all state on which one of them sleeps, so no wake is lost.

use std::collections::VecDeque;

#[cfg(not(all(test, loom)))]
use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(all(test, loom))]
use loom::sync::{Condvar, Mutex, MutexGuard};

use super::writes::Writes;
use crate::contract::{Departed, FabricError, Qpn};

/// Most writes that the thread has not sent: two batches of an endpoint, so that one is prepared while
/// the other is sent.
pub(super) const MOST_WRITES: usize = 256;
/// Most SENDs that the thread has not sent. They have a limit of their own, so that control packets are
/// accepted while there is no room for data.
const MOST_SENDS: usize = 64;

/// How often the thread may report progress while a discard waits for SENDs: more often than it sends,
/// and few enough that a full carrier holds up the owner for a tenth of a second at most.
const MOST_REPORTS: usize = MOST_SENDS + 36;

/// What the thread does next.
#[derive(Debug)]
pub(super) enum Next {
    /// [`Queue::finish`] follows.
    Job(Job),
    /// Poll the transmit queue, so that it applies what has become of queue pairs. Jobs do that too.
    Update,
}

/// Packets of a queue pair.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) qpn: Qpn,
    pub(super) work: Work,
}

#[derive(Debug)]
pub(super) enum Work {
    Writes(Writes),
    Send(Vec<u8>),
}

impl Work {
    /// The numbers of its writes and of its SENDs.
    fn counts(&self) -> [usize; 2] {
        match self {
            Self::Writes(writes) => [writes.len(), 0],
            Self::Send(_) => [0, 1],
        }
    }
}

/// Jobs for one thread, and their results.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is a job or an update, or the queue is closed.
    filled: Condvar,
    /// The thread has done something that a discard waits for, or could not.
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    under_way: Option<UnderWay>,
    /// Whether queue pairs have changed since the last job was taken.
    has_updates: bool,
    /// The queue pair that the owner discards, while it waits for the thread.
    ending: Option<Qpn>,
    /// Writes and SENDs that wait or are under way.
    writes: usize,
    sends: usize,
    /// Whether the owner found no room, and has not been woken since.
    is_refused: bool,
    /// Whether the thread sleeps, or was woken and does not run yet.
    is_asleep: bool,
    is_closed: bool,
    /// Departures that the owner has not taken.
    departed: Vec<Departed>,
    /// Why packets of queue pairs cannot be sent: the first error of each.
    broken: Vec<(Qpn, FabricError)>,
    has_failed: bool,
    /// Why the thread has failed, until the owner has heard it.
    failure: Option<FabricError>,
}

/// The job that the thread has taken.
#[derive(Debug)]
struct UnderWay {
    qpn: Qpn,
    counts: [usize; 2],
    /// False once the jobs of its queue pair were discarded.
    is_wanted: bool,
}

/// For the owner.
impl Queue {
    /// `departed` are departures from before the thread, which the owner has not taken.
    pub(super) fn new(departed: Vec<Departed>) -> Self {
        let state = State {
            departed,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            filled: Condvar::new(),
            settled: Condvar::new(),
        }
    }

    /// For how many of `wanted` writes there is room. If not for all, the thread wakes the owner later.
    pub(super) fn room_for_writes(&self, wanted: usize) -> usize {
        let mut state = self.lock();
        let room = match state.has_failed {
            true => 0,
            false => MOST_WRITES.saturating_sub(state.writes),
        };
        state.is_refused |= room < wanted;
        room.min(wanted)
    }

    /// Whether there is room for a SEND. If not, the thread wakes the owner later.
    pub(super) fn has_room_for_send(&self) -> bool {
        let mut state = self.lock();
        let has_room = state.sends < MOST_SENDS && !state.has_failed;
        state.is_refused |= !has_room;
        has_room
    }

    /// Appends a job, for which there is room. Drops it if the thread has failed since, so that its memory
    /// is not in use.
    pub(super) fn push(&self, job: Job) {
        let mut state = self.lock();
        if state.has_failed {
            return;
        }
        let [writes, sends] = job.work.counts();
        state.writes += writes;
        state.sends += sends;
        state.waiting.push_back(job);
        self.wake_thread(state);
    }

    /// Makes the transmit queue apply what has become of queue pairs, if no job does. Otherwise the changes,
    /// secrets among them, would accumulate on a port that sends nothing.
    pub(super) fn update(&self) {
        let mut state = self.lock();
        state.has_updates = true;
        self.wake_thread(state);
    }

    fn wake_thread(&self, state: MutexGuard<'_, State>) {
        // A wake costs a system call even if nobody sleeps.
        let is_asleep = state.is_asleep;
        drop(state);
        if is_asleep {
            self.filled.notify_one();
        }
    }

    /// Takes the departures since the last call.
    pub(super) fn take_departed(&self, out: &mut Vec<Departed>) {
        out.append(&mut self.lock().departed);
    }

    /// Checks that the thread has not failed.
    ///
    /// # Errors
    /// [`FabricError::Io`] if it has. The first call returns the reason.
    pub(super) fn check(&self) -> Result<(), FabricError> {
        let mut state = self.lock();
        match state.failure.take() {
            Some(failure) => Err(failure),
            None if state.has_failed => Err(FabricError::Io {
                what: "sending".into(),
                source: std::io::Error::other("the thread that sends has failed"),
            }),
            None => Ok(()),
        }
    }

    /// Takes a queue pair whose packets cannot be sent, with the reason.
    pub(super) fn take_broken(&self) -> Option<(Qpn, FabricError)> {
        self.lock().broken.pop()
    }

    /// Drops the writes of a queue pair and the results of its jobs. Waits for the job under way, if any, and
    /// for its SENDs, which go before other jobs and do not wait for room. Returns whether the owner must
    /// be woken, because a dropped job would have done so at its end.
    pub(super) fn discard(&self, qpn: Qpn) -> bool {
        let mut state = self.lock();
        let mut wakes =
            state.drop_jobs(|job| job.qpn == qpn && matches!(job.work, Work::Writes(_)));
        let waiting = state.waiting.make_contiguous();
        waiting.sort_by_key(|job| job.qpn != qpn);
        state.ending = Some(qpn);
        for reports in 0_usize.. {
            // Another queue pair may find no room for long.
            if reports == MOST_REPORTS {
                wakes |= state.drop_jobs(|job| job.qpn == qpn);
            }
            let is_under_way = match &mut state.under_way {
                Some(job) if job.qpn == qpn => {
                    job.is_wanted = false;
                    true
                }
                _ => false,
            };
            if !is_under_way && state.waiting.iter().all(|job| job.qpn != qpn) {
                break;
            }
            state = match self.settled.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
        state.ending = None;
        state.is_refused &= !wakes;
        state.departed.retain(|departed| departed.qpn != qpn);
        state.broken.retain(|(broken, _)| *broken != qpn);
        wakes
    }

    /// Ends the thread after the jobs that wait, as far as the carrier has room for them.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is valid even after a panic of another thread.
        match self.state.lock() {
            Ok(state) => state,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// For the thread.
impl Queue {
    /// Takes what to do next; sleeps until there is something. Returns `None` once the queue is closed and
    /// empty.
    pub(super) fn take(&self) -> Option<Next> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.waiting.pop_front() {
                state.under_way = Some(UnderWay {
                    qpn: job.qpn,
                    counts: job.work.counts(),
                    is_wanted: state.ending != Some(job.qpn),
                });
                state.has_updates = false;
                return Some(Next::Job(job));
            }
            if std::mem::take(&mut state.has_updates) {
                return Some(Next::Update);
            }
            if state.is_closed {
                return None;
            }
            state.is_asleep = true;
            state = match self.filled.wait(state) {
                Ok(state) => state,
                Err(poisoned) => poisoned.into_inner(),
            };
            state.is_asleep = false;
        }
    }

    /// Whether the thread should wait until the carrier has room for the job under way.
    pub(super) fn is_worth_waiting(&self) -> bool {
        let state = self.lock();
        if state.ending.is_some() {
            self.settled.notify_one();
        }
        let is_wanted = state.under_way.as_ref().is_some_and(|job| job.is_wanted);
        is_wanted && !state.is_closed
    }

    /// Reports the end of the job under way, which was dropped, and takes its departures. Returns whether
    /// the owner must be woken.
    pub(super) fn finish(&self, departed: &mut Vec<Departed>, error: Option<FabricError>) -> bool {
        let mut state = self.lock();
        let Some(job) = state.under_way.take() else {
            return false;
        };
        state.leave(job.counts);
        let mut wakes = error.is_some();
        if job.is_wanted {
            state.departed.append(departed);
            let is_known = state.broken.iter().any(|(qpn, _)| *qpn == job.qpn);
            let error = error.filter(|_| !is_known);
            state.broken.extend(error.map(|error| (job.qpn, error)));
        } else {
            departed.clear();
        }
        // While jobs wait, the owner has time: it is woken for room for a batch, and with the last job.
        wakes |= state.is_refused && state.writes <= MOST_WRITES / 2 || state.waiting.is_empty();
        state.is_refused &= !wakes;
        let is_ending = state.ending.is_some();
        drop(state);
        if is_ending {
            self.settled.notify_one();
        }
        wakes
    }

    /// Reports that the thread ends, because the port has failed.
    pub(super) fn fail(&self, failure: FabricError) {
        let mut state = self.lock();
        state.has_failed = true;
        state.failure = Some(failure);
        state.under_way = None;
        state.waiting.clear();
        drop(state);
        self.settled.notify_one();
    }
}

impl State {
    /// Drops the jobs that wait and that `is_dropped` names. Returns whether there were any.
    fn drop_jobs(&mut self, is_dropped: impl Fn(&Job) -> bool) -> bool {
        let count = self.waiting.len();
        let (dropped, kept) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(is_dropped);
        self.waiting = kept;
        for job in dropped {
            self.leave(job.work.counts());
        }
        self.waiting.len() < count
    }

    fn leave(&mut self, [writes, sends]: [usize; 2]) {
        self.writes -= writes;
        self.sends -= sends;
    }
}

#[cfg(all(test, loom))]
mod interleavings;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The carrier is full for good. The owner waits for a SEND behind it, but not for ever.
    #[test]
    fn a_full_carrier_does_not_stop_the_owner() {
        let queue = Queue::new(Vec::new());
        let send = |qpn| {
            let work = Work::Send(Vec::new());
            queue.push(Job { qpn, work });
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Some(Next::Job(_)) = queue.take() {
                    while queue.is_worth_waiting() {
                        std::thread::yield_now();
                    }
                    queue.finish(&mut Vec::new(), None);
                }
            });
            send(Qpn(1));
            while queue.lock().under_way.is_none() {
                std::thread::yield_now();
            }
            send(Qpn(2));
            assert!(queue.discard(Qpn(2)), "it was dropped");
            let state = queue.lock();
            assert_eq!((state.sends, state.waiting.len()), (1, 0));
            drop(state);
            queue.close();
        });
    }
}
