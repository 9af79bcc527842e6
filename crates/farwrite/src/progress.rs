//! An endpoint on a thread of its own.

mod lender;
mod lending;
mod requests;
mod tasks;

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farwrite_fabric::contract::{FabricError, RealTime, Waker};
use farwrite_fabric::threads;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;
use crate::user_wakes::{QpWaker, UserWakes};
use crate::waiters::Waiters;
use lending::{Ending, Lending, Polled};
use requests::Request;
use tasks::{Task, Tasks};

pub(crate) use lender::Lender;
pub use lender::RepeatedWait;
pub use requests::TaskAdder;
pub use tasks::{TaskId, TaskState};

/// Maximum sleep of the thread. Packets, timers and calls end the sleep at once.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Maximum number of requests between two polls. The limit keeps the wait of packets short.
const REQUESTS_A_POLL: usize = 64;

/// Maximum number of times that the thread does what its tasks and sending have made possible, before it looks for
/// arrivals again.
const ROUNDS_A_POLL: usize = 3;

/// An endpoint that a thread of its own polls, so that any thread can use it.
///
/// Calls on the endpoint go through [`ProgressThread::call`]. The thread, or one that polls in its
/// place ([`ProgressThread::wait_or_poll`]), runs calls and tasks between two polls. Reading a
/// [`RecvHandle`](crate::RecvHandle) or a [`SendHandle`](crate::SendHandle) costs a few atomic loads
/// on any thread. [`ProgressThread::wait`] sleeps until a condition on them holds.
///
/// ```
/// use std::net::{Ipv4Addr, SocketAddr};
/// use std::time::Duration;
/// use farwrite::{Endpoint, Outcome, QpOptions, SendOptions, UdpConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
/// let a = Endpoint::over_udp(&UdpConfig::new(loopback))?.start_thread()?;
/// let b = Endpoint::over_udp(&UdpConfig::new(loopback))?.start_thread()?;
/// let qa = a.call(|a| a.create_qp(QpOptions::default()))??;
/// let qb = b.call(|b| b.create_qp(QpOptions::default()))??;
/// let (info_a, info_b) = (a.call(move |a| a.qp_info(qa))??, b.call(move |b| b.qp_info(qb))??);
/// a.call(move |a| a.connect_qp(qa, &info_b))??;
/// b.call(move |b| b.connect_qp(qb, &info_a))??;
///
/// let target = b.call(|b| b.register(vec![0_u8; 1 << 20]))??;
/// let recv = b.call(move |b| b.post_recv(qb, target.whole()))??;
/// let source = a.call(|a| a.register(vec![7_u8; 1 << 20]))??;
/// a.call(move |a| a.post_send(qa, source.whole(), SendOptions::default()))??;
/// let outcome = b.wait(Duration::from_secs(10), || recv.outcome())?;
/// assert_eq!(outcome, Some(Outcome::Whole));
/// # Ok(())
/// # }
/// ```
pub struct ProgressThread<F: RealTime> {
    shared: Arc<SharedThread<F>>,
    requests: TaskAdder<F>,
    lender: Arc<dyn Lender>,
    user_wakes: UserWakes,
    /// `None` once the thread is joined.
    thread: Option<JoinHandle<Endpoint<F>>>,
}

/// State shared by the thread and its users.
struct SharedThread<F: RealTime> {
    stop: AtomicBool,
    state: Mutex<ThreadState>,
    /// Threads in [`ProgressThread::wait`].
    polled: Waiters,
    /// Wakes the thread that polls the endpoint.
    waker: Waker,
    lending: Lending<Progress<F>>,
}

#[derive(Default)]
struct ThreadState {
    has_ended: bool,
    /// The reason, if the fabric broke.
    failure: Option<Arc<Error>>,
}

impl<F: RealTime<Tx: Send> + Send + 'static> Endpoint<F> {
    /// Moves the endpoint to a new thread that polls it.
    ///
    /// # Errors
    /// [`Error::Fabric`] when the operating system cannot start a thread.
    pub fn start_thread(self) -> Result<ProgressThread<F>, Error> {
        let shared = Arc::new(SharedThread {
            stop: AtomicBool::default(),
            state: Mutex::default(),
            polled: Waiters::default(),
            waker: self.fabric().waker(),
            lending: Lending::default(),
        });
        let user_wakes = self.user_wakes.clone();
        let (requests, received) = mpsc::channel();
        let progress = Progress {
            endpoint: self,
            tasks: Tasks::default(),
            shared: Arc::clone(&shared),
            requests: received,
        };
        let thread = threads::spawn("farwrite", move || progress.run());
        let thread = thread.map_err(|source| FabricError::Io {
            what: "starting the endpoint's thread".into(),
            source,
        })?;
        Ok(ProgressThread {
            lender: Arc::clone(&shared) as Arc<dyn Lender>,
            requests: TaskAdder::new(requests, Arc::clone(&shared)),
            shared,
            user_wakes,
            thread: Some(thread),
        })
    }
}

impl<F: RealTime<Tx: Send> + Send + 'static> ProgressThread<F> {
    /// Runs `call` between two polls of the endpoint, and returns what it returns.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended, because the fabric broke or a call panicked.
    ///
    /// # Panics
    /// If called within another call, or within a task: the call would wait for itself.
    pub fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Endpoint<F>) -> R + Send + 'static,
    ) -> Result<R, Error> {
        assert!(
            !self.is_own_thread(),
            "a call within a call waits for itself"
        );
        let (answer, answered) = mpsc::sync_channel(1);
        let call = Box::new(move |endpoint: &mut Endpoint<F>| {
            // The caller waits for the answer.
            let _ = answer.send(call(endpoint));
        });
        self.request(Request::Call(call))?;
        let answer = answered.recv().ok();
        answer.ok_or_else(|| self.shared.stopped())
    }

    /// Runs `call` between two polls of the endpoint, after all earlier calls, and does not wait for it. A thread that
    /// has ended runs none.
    pub fn post(&self, call: impl FnOnce(&mut Endpoint<F>) + Send + 'static) {
        // A thread that has ended has nothing left to change.
        let _ = self.request(Request::Call(Box::new(call)));
    }

    /// Adds work that the thread does after every poll, from now on until it is
    /// [`TaskState::Done`] or removed. A task must not wait. [`ProgressThread::waker`] makes the
    /// thread poll, and run these tasks, at once. When the thread ends, it drops its tasks.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended.
    pub fn add_task(
        &self,
        task: impl FnMut(&mut Endpoint<F>) -> TaskState + Send + 'static,
    ) -> Result<TaskId, Error> {
        self.add(None, Box::new(task))
    }

    /// Adds work of one queue pair: the thread does it now, after polls that may have changed a
    /// message or a resource of the queue pair, after a wake ([`ProgressThread::waker_of`]), and when
    /// the task itself asks for it. While the queue pair is idle, it costs nothing. Otherwise it is as
    /// [`ProgressThread::add_task`].
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended.
    pub fn add_task_of(
        &self,
        qp: QueuePair,
        task: impl FnMut(&mut Endpoint<F>) -> TaskState + Send + 'static,
    ) -> Result<TaskId, Error> {
        self.add(Some(qp), Box::new(task))
    }

    fn add(&self, qp: Option<QueuePair>, task: Task<F>) -> Result<TaskId, Error> {
        let added = self.requests.add(qp, task);
        added.ok_or_else(|| self.shared.stopped())
    }

    /// Returns what adds tasks also from a task of the thread.
    #[must_use]
    pub fn task_adder(&self) -> TaskAdder<F> {
        self.requests.clone()
    }

    /// Drops a task, between two polls. A task that has ended is ignored.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended.
    pub fn remove_task(&self, task: TaskId) -> Result<(), Error> {
        self.request(Request::RemoveTask(task))
    }

    /// Returns a waker that makes the thread run the tasks of a queue pair.
    #[must_use]
    pub fn waker_of(&self, qp: QueuePair) -> QpWaker {
        let lender = Some(Arc::clone(&self.lender));
        self.user_wakes.waker(qp, self.shared.waker.clone(), lender)
    }

    /// Returns a waker of the thread: it makes the thread poll at once.
    #[must_use]
    pub fn waker(&self) -> Waker {
        let shared = Arc::clone(&self.shared);
        Waker::new(move || shared.wake())
    }

    fn request(&self, request: Request<F>) -> Result<(), Error> {
        match self.requests.request(request) {
            true => Ok(()),
            false => Err(self.shared.stopped()),
        }
    }

    /// Sleeps until `ready` returns something. `ready` is called after every poll of the endpoint, so
    /// each waiting thread costs something at every poll. Returns `None` after `at_most`.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended, because the fabric broke or a call panicked.
    pub fn wait<R>(
        &self,
        at_most: Duration,
        ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Error> {
        self.wait_with(&self.shared.polled, at_most, ready)
    }

    /// As [`ProgressThread::wait`], but `ready` is called only after [`Waiters::wake`], which a task
    /// calls when `ready` may return something. It should also be called when the task is dropped:
    /// otherwise a thread learns only within a second that this thread has ended.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended, because the fabric broke or a call panicked.
    pub fn wait_with<R>(
        &self,
        waiters: &Waiters,
        at_most: Duration,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Error> {
        // `None`: no time limit.
        let end = Instant::now().checked_add(at_most);
        let waiting = waiters.enter();
        loop {
            let before = waiting.look();
            // Called without a lock, because `ready` may call the endpoint.
            let answer = ready();
            let left = end.map_or(MAX_SLEEP, |end| {
                end.saturating_duration_since(Instant::now())
            });
            if answer.is_some() || left.is_zero() {
                return Ok(answer);
            }
            if self.shared.lock().has_ended {
                return Err(self.shared.stopped());
            }
            waiting.sleep(before, left.min(MAX_SLEEP));
        }
    }

    /// As [`ProgressThread::wait_with`], but if a thread has waited for the same thing within the last 0.2 ms, this one
    /// polls the endpoint itself, unless another thread does: this saves a switch of threads. So `ready` must not call
    /// the endpoint, the caller holds no lock that a task or a call of another thread takes, and only tasks of this
    /// endpoint wake `waiters`.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the thread has ended, because the fabric broke or a call panicked.
    pub fn wait_or_poll<R>(
        &self,
        waiters: &Waiters,
        at_most: Duration,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>, Error> {
        let mut answer = ready();
        if answer.is_some() {
            return Ok(answer);
        }
        let start = Instant::now();
        let repeated = RepeatedWait::begin(&self.lender, waiters.last_ended());
        if let Some(repeated) = &repeated {
            repeated.poll_until(at_most, || {
                answer = ready();
                answer.is_some()
            });
        }
        if answer.is_none() {
            answer = self.wait_with(waiters, at_most.saturating_sub(start.elapsed()), ready)?;
        }
        waiters.end();
        Ok(answer)
    }

    /// Ends the thread, and returns the endpoint. If the fabric broke, the endpoint's next poll
    /// returns the error.
    ///
    /// # Panics
    /// If a call has panicked.
    #[must_use]
    pub fn stop(mut self) -> Endpoint<F> {
        let thread = self.end().expect("only `stop` and `drop` take the thread");
        match thread.join() {
            Ok(endpoint) => endpoint,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Leaves the thread to itself, before this value is dropped: the thread runs `task` after every poll, as [`ProgressThread::add_task`] says, and
    /// ends when the task is done. Nobody waits for it, so the owner may be dropped on the thread itself.
    pub fn end_after(
        &mut self,
        mut task: impl FnMut(&mut Endpoint<F>) -> TaskState + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let last = move |endpoint: &mut Endpoint<F>| {
            let state = task(endpoint);
            if let TaskState::Done = state {
                shared.stop.store(true, Ordering::Release);
                shared.wake();
            }
            state
        };
        if self.add_task(last).is_ok() {
            // Without its handle, `drop` leaves the thread alone.
            self.thread = None;
        }
    }
}

impl<F: RealTime> ProgressThread<F> {
    /// Whether the caller runs on the endpoint's own thread, or on one that polls for it. It cannot wait for itself.
    #[must_use]
    pub fn is_own_thread(&self) -> bool {
        let thread = self.thread.as_ref().map(|handle| handle.thread().id());
        thread == Some(std::thread::current().id()) || self.shared.is_polled_here()
    }

    fn end(&mut self) -> Option<JoinHandle<Endpoint<F>>> {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        self.thread.take()
    }
}

impl<F: RealTime> Drop for ProgressThread<F> {
    fn drop(&mut self) {
        if self.thread.is_none() {
            return;
        }
        let is_own = self.is_own_thread();
        // Within a call, the thread ends only after the call has returned.
        if let Some(thread) = self.end().filter(|_| !is_own) {
            // A panic was reported on the thread itself.
            let _ = thread.join();
        }
    }
}

impl<F: RealTime> SharedThread<F> {
    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes whatever thread polls, or else the endpoint's thread, poll at once.
    fn wake(&self) {
        self.waker.wake();
        self.lending.recall();
    }

    fn stopped(&self) -> Error {
        Error::Stopped(self.lock().failure.clone())
    }
}

/// What runs on the thread.
struct Progress<F: RealTime> {
    endpoint: Endpoint<F>,
    tasks: Tasks<F>,
    shared: Arc<SharedThread<F>>,
    requests: Receiver<Request<F>>,
}

impl<F: RealTime> Progress<F> {
    fn run(self) -> Endpoint<F> {
        let shared = Arc::clone(&self.shared);
        let mut progress = Box::new(self);
        // This also takes effect when a call panics: no thread may wait for an answer that never
        // comes.
        let _ended = Ended(Arc::clone(&shared));
        while !shared.stop.load(Ordering::Acquire) {
            let turned = match progress.round() {
                Ok(_) if shared.lending.is_wanted() => {
                    let ending;
                    (progress, ending) = shared.lending.lend(progress);
                    match ending {
                        None => Ok(()),
                        Some(Ending::Failed(error)) => Err(error),
                        Some(Ending::Panicked(panic)) => resume_unwind(panic),
                    }
                }
                Ok(next_ns) => progress.sleep(next_ns, MAX_SLEEP),
                Err(error) => Err(error),
            };
            if let Err(error) = turned {
                shared.lock().failure = Some(Arc::new(error));
                break;
            }
        }
        progress.endpoint
    }

    /// Polls the endpoint and runs its tasks. Returns when to poll again.
    fn poll(&mut self) -> Result<Option<u64>, Error> {
        // What users have written leaves with this poll.
        self.tasks.run_ready(&mut self.endpoint)?;
        let mut next_ns = self.endpoint.poll_now()?;
        let mut pairs_ns = self.tasks.run_ready(&mut self.endpoint)?;
        for _ in 0..ROUNDS_A_POLL {
            let now_ns = self.endpoint.fabric().now_ns();
            if !self.endpoint.has_work() && pairs_ns.is_none_or(|pairs_ns| pairs_ns > now_ns) {
                break;
            }
            next_ns = self.endpoint.work_now()?;
            pairs_ns = self.tasks.run_ready(&mut self.endpoint)?;
        }
        // After the rounds, so that these tasks see what the rounds have ended.
        let every_ns = self.tasks.run_every(&mut self.endpoint)?;
        let has_work = self.endpoint.has_work().then_some(0);
        let next = [next_ns, every_ns, pairs_ns, has_work];
        Ok(next.into_iter().flatten().min())
    }
}

impl<F: RealTime> Polled for Progress<F> {
    fn round(&mut self) -> Result<Option<u64>, Error> {
        let _here = self.shared.polls_here();
        let mut requests = 0;
        for request in self.requests.try_iter().take(REQUESTS_A_POLL) {
            match request {
                Request::Call(call) => call(&mut self.endpoint),
                Request::AddTask(id, qp, task) => {
                    self.tasks.add(&mut self.endpoint, id, qp, task);
                }
                Request::RemoveTask(id) => self.tasks.remove(id),
            }
            requests += 1;
        }
        let next_ns = self.poll()?;
        self.shared.polled.wake();
        // There may be more requests, whose wakes ended earlier sleeps.
        let is_full = requests == REQUESTS_A_POLL;
        Ok(if is_full { Some(0) } else { next_ns })
    }

    fn sleep(&mut self, next_ns: Option<u64>, at_most: Duration) -> Result<(), Error> {
        self.endpoint.wait_until(next_ns, at_most)
    }

    fn is_over(&self, time_ns: u64) -> bool {
        time_ns <= self.endpoint.fabric().now_ns()
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }
}

/// Announces the end of the thread when it is dropped.
struct Ended<F: RealTime>(Arc<SharedThread<F>>);

impl<F: RealTime> Drop for Ended<F> {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.lending.close();
        self.0.polled.wake();
    }
}
