//! What other threads, and tasks, ask of the thread of an endpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use farwrite_fabric::contract::RealTime;

use super::SharedThread;
use super::tasks::{Task, TaskId, TaskState};
use crate::endpoint::Endpoint;
use crate::handle::QueuePair;

/// A call that waits for the thread.
type Call<F> = Box<dyn FnOnce(&mut Endpoint<F>) + Send>;

/// What other threads ask of the thread.
pub(super) enum Request<F: RealTime> {
    Call(Call<F>),
    /// A task of a queue pair, or one that runs after every poll.
    AddTask(TaskId, Option<QueuePair>, Task<F>),
    RemoveTask(TaskId),
}

/// Adds tasks to the thread of an endpoint. Unlike the [`ProgressThread`](crate::ProgressThread) that it
/// comes from, it can be cloned and moved into a task, which then adds others.
pub struct TaskAdder<F: RealTime> {
    requests: Sender<Request<F>>,
    next_task: Arc<AtomicU64>,
    shared: Arc<SharedThread<F>>,
}

impl<F: RealTime> Clone for TaskAdder<F> {
    fn clone(&self) -> Self {
        Self {
            requests: self.requests.clone(),
            next_task: Arc::clone(&self.next_task),
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<F: RealTime> TaskAdder<F> {
    pub(super) fn new(requests: Sender<Request<F>>, shared: Arc<SharedThread<F>>) -> Self {
        Self {
            requests,
            next_task: Arc::default(),
            shared,
        }
    }

    /// As [`ProgressThread::add_task_of`](crate::ProgressThread::add_task_of). A thread that has ended drops
    /// the task.
    pub fn add_task_of(
        &self,
        qp: QueuePair,
        task: impl FnMut(&mut Endpoint<F>) -> TaskState + Send + 'static,
    ) {
        // Nothing is left to do on a thread that has ended.
        let _ = self.add(Some(qp), Box::new(task));
    }

    /// Returns the name of the task, or `None` if the thread has ended.
    pub(super) fn add(&self, qp: Option<QueuePair>, task: Task<F>) -> Option<TaskId> {
        let id = TaskId(self.next_task.fetch_add(1, Ordering::Relaxed));
        self.request(Request::AddTask(id, qp, task)).then_some(id)
    }

    /// Returns whether the thread has not ended.
    pub(super) fn request(&self, request: Request<F>) -> bool {
        let is_sent = self.requests.send(request).is_ok();
        self.shared.wake();
        is_sent
    }
}
