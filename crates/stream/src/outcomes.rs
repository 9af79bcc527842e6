//! Futures for the outcomes of messages.

use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use farwrite::fabric::threads::lock;
use farwrite::{Outcome, RecvHandle, SendHandle, TaskState};

use crate::error::Error;

/// Waits for the outcomes of messages of an endpoint, in asynchronous tasks.
///
/// ```
/// use farwrite::{Endpoint, Outcome, QpOptions, SendOptions, UdpConfig};
/// use farwrite_stream::Outcomes;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut a = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// # let mut b = Endpoint::over_udp(&UdpConfig::new("127.0.0.1:0".parse()?))?;
/// # let (qa, qb) = (a.create_qp(QpOptions::default())?, b.create_qp(QpOptions::default())?);
/// # let (info_a, info_b) = (a.qp_info(qa)?, b.qp_info(qb)?);
/// # a.connect_qp(qa, &info_b)?;
/// # b.connect_qp(qb, &info_a)?;
/// # let target = b.register(vec![0; 1000])?;
/// # b.post_recv(qb, target.whole())?;
/// # let source = a.register(vec![7; 1000])?;
/// # let (a, _b) = (a.start_thread()?, b.start_thread()?);
/// // `a` is the thread of an endpoint.
/// let (outcomes, mut task) = Outcomes::new();
/// a.add_task(move |_| task.run())?;
/// let send = a.call(move |a| a.post_send(qa, source.whole(), SendOptions::default()))??;
/// assert_eq!(outcomes.of_send(&send).await?, Outcome::Whole);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Outcomes {
    waiting: Arc<Mutex<Waiting>>,
}

/// The part of [`Outcomes`] that the thread of the endpoint runs after every poll.
pub struct OutcomesTask {
    waiting: Arc<Mutex<Waiting>>,
}

/// The asynchronous tasks that wait.
#[derive(Default)]
struct Waiting {
    list: Vec<Waiter>,
    next_id: u64,
    has_ended: bool,
}

/// A future that waits. A later poll of it replaces its waker.
struct Waiter {
    id: u64,
    has_outcome: Box<dyn Fn() -> bool + Send>,
    waker: Waker,
}

impl Outcomes {
    /// Returns the user's part, and the part for the thread of the endpoint.
    #[must_use]
    pub fn new() -> (Self, OutcomesTask) {
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let task = OutcomesTask {
            waiting: Arc::clone(&waiting),
        };
        (Self { waiting }, task)
    }

    /// Waits until a send has an outcome.
    ///
    /// # Errors
    /// [`Error::Ended`] when the thread of the endpoint has ended.
    pub fn of_send(
        &self,
        send: &SendHandle,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send + 'static {
        let send = send.clone();
        self.of(move || send.outcome())
    }

    /// Waits until a receive has an outcome.
    ///
    /// # Errors
    /// [`Error::Ended`] when the thread of the endpoint has ended.
    pub fn of_recv(
        &self,
        recv: &RecvHandle,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send + 'static {
        let recv = recv.clone();
        self.of(move || recv.outcome())
    }

    fn of(
        &self,
        outcome: impl Fn() -> Option<Outcome> + Clone + Send + 'static,
    ) -> impl Future<Output = Result<Outcome, Error>> + Send + 'static {
        let waiting = Arc::clone(&self.waiting);
        let id = {
            let mut waiting = lock(&waiting);
            waiting.next_id += 1;
            waiting.next_id
        };
        poll_fn(move |context| {
            let mut waiting = lock(&waiting);
            // Looked at under the lock, so that the task cannot miss the entry.
            if let Some(outcome) = outcome() {
                return Poll::Ready(Ok(outcome));
            }
            if waiting.has_ended {
                return Poll::Ready(Err(Error::Ended));
            }
            let waker = context.waker();
            match waiting.list.iter_mut().find(|waiter| waiter.id == id) {
                Some(waiter) => waiter.waker.clone_from(waker),
                None => {
                    let (outcome, waker) = (outcome.clone(), waker.clone());
                    waiting.list.push(Waiter {
                        id,
                        has_outcome: Box::new(move || outcome().is_some()),
                        waker,
                    });
                }
            }
            Poll::Pending
        })
    }
}

impl OutcomesTask {
    /// Wakes those whose messages have an outcome.
    pub fn run(&mut self) -> TaskState {
        lock(&self.waiting).list.retain(|waiter| {
            let has_outcome = (waiter.has_outcome)();
            if has_outcome {
                waiter.waker.wake_by_ref();
            }
            !has_outcome
        });
        TaskState::Idle
    }
}

impl Drop for OutcomesTask {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.has_ended = true;
        for waiter in waiting.list.drain(..) {
            waiter.waker.wake();
        }
    }
}
