//! The tasks of an endpoint's thread.

use std::collections::HashMap;

use farwrite_fabric::contract::RealTime;

use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::handle::QueuePair;

/// Work that the thread does between polls.
pub(super) type Task<F> = Box<dyn FnMut(&mut Endpoint<F>) -> TaskState + Send>;

/// Names a task of a [`ProgressThread`](crate::ProgressThread).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId(pub(super) u64);

/// When a task of a [`ProgressThread`](crate::ProgressThread) runs again.
#[derive(Debug)]
pub enum TaskState {
    /// After the next poll, whatever that is for; if the task is one of a queue pair, after the next
    /// poll that concerns the queue pair.
    Idle,
    /// At this time at the latest, by the clock of [`Endpoint::poll`].
    Until(u64),
    /// At once, after another poll: it has used the endpoint.
    Worked,
    /// Never: it is dropped.
    Done,
    /// Never: the endpoint cannot be used any more, and the thread ends, as after a failed poll.
    Failed(Error),
}

impl From<Result<Option<u64>, Error>> for TaskState {
    /// Of the time of the next run, as [`Endpoint::poll`] returns it.
    fn from(next: Result<Option<u64>, Error>) -> Self {
        match next {
            Ok(None) => Self::Idle,
            Ok(Some(next_ns)) => Self::Until(next_ns),
            Err(error) => Self::Failed(error),
        }
    }
}

/// Tasks that run together.
struct Group<F: RealTime>(Vec<(TaskId, Task<F>)>);

impl<F: RealTime> Default for Group<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: RealTime> Group<F> {
    /// Returns when to run the tasks again.
    fn run(&mut self, endpoint: &mut Endpoint<F>) -> Result<Option<u64>, Error> {
        let (mut next_ns, mut failed) = (None, None);
        let mut run_at = |at_ns: u64| next_ns = next_ns.into_iter().chain([at_ns]).min();
        self.0.retain_mut(|(_, task)| {
            match task(endpoint) {
                TaskState::Idle => {}
                TaskState::Until(at_ns) => run_at(at_ns),
                TaskState::Worked => run_at(0),
                TaskState::Done => return false,
                TaskState::Failed(error) => failed = Some(error),
            }
            true
        });
        failed.map_or(Ok(next_ns), Err)
    }
}

pub(super) struct Tasks<F: RealTime> {
    /// Tasks that run after every poll.
    every: Group<F>,
    /// Tasks of queue pairs, by index. A task may outlive its queue pair, and then shares the index
    /// with those of a newer one.
    of_pairs: HashMap<u32, Group<F>>,
}

impl<F: RealTime> Default for Tasks<F> {
    fn default() -> Self {
        Self {
            every: Group::default(),
            of_pairs: HashMap::new(),
        }
    }
}

impl<F: RealTime> Tasks<F> {
    pub(super) fn add(
        &mut self,
        endpoint: &mut Endpoint<F>,
        id: TaskId,
        qp: Option<QueuePair>,
        task: Task<F>,
    ) {
        let group = match qp {
            Some(qp) => {
                endpoint.users.wake(qp.index);
                self.of_pairs.entry(qp.index).or_default()
            }
            None => &mut self.every,
        };
        group.0.push((id, task));
    }

    pub(super) fn remove(&mut self, id: TaskId) {
        self.every.0.retain(|(known, _)| *known != id);
        self.of_pairs.retain(|_, group| {
            group.0.retain(|(known, _)| *known != id);
            !group.0.is_empty()
        });
    }

    /// Runs the tasks that run after every poll. Returns when to run them again.
    pub(super) fn run_every(&mut self, endpoint: &mut Endpoint<F>) -> Result<Option<u64>, Error> {
        self.every.run(endpoint)
    }

    /// Runs the tasks of queue pairs that are due. Returns when to run the next ones.
    pub(super) fn run_ready(&mut self, endpoint: &mut Endpoint<F>) -> Result<Option<u64>, Error> {
        let wakes = endpoint.user_wakes.clone();
        wakes.take(|index| endpoint.users.wake(index));
        let now_ns = endpoint.fabric().now_ns();
        endpoint.users.expire(now_ns);
        // Those that ask to run at once run after the next poll.
        for _ in 0..endpoint.users.ready_count() {
            let Some(index) = endpoint.users.take_ready() else {
                break;
            };
            let Some(group) = self.of_pairs.get_mut(&index) else {
                continue;
            };
            let next_ns = group.run(endpoint)?;
            if group.0.is_empty() {
                self.of_pairs.remove(&index);
            }
            endpoint.users.set_timer(index, next_ns);
        }
        Ok(endpoint.users.next_ns(now_ns))
    }
}
