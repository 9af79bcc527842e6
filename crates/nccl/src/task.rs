//! What the thread of the endpoint does for a connection: it posts requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farwrite::{Endpoint, Error, QueuePair, SendOptions, TaskState, UdpFabric};
use farwrite_choice::SchemePicker;

use crate::request::Request;

/// The requests of a connection, which NCCL's threads and the thread of the endpoint share.
#[derive(Default)]
pub(crate) struct Flow(Mutex<FlowState>);

#[derive(Default)]
struct FlowState {
    /// Requests that were not posted yet, in order.
    waiting: VecDeque<Arc<Request>>,
    /// Requests that were posted. Those that have ended are removed now and then.
    posted: VecDeque<Arc<Request>>,
    /// Why no more requests are taken.
    failed: Option<Arc<str>>,
}

impl Flow {
    fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, unless `most` of them wait. Returns whether it was added. After the end of the connection, the
    /// request has failed: NCCL learns from `test` what happens to a request.
    pub(crate) fn add(&self, request: &Arc<Request>, most: usize) -> bool {
        let mut state = self.lock();
        if state.failed.is_some() {
            request.fail();
            return true;
        }
        let has_room = state.waiting.len() < most;
        if has_room {
            state.waiting.push_back(Arc::clone(request));
        }
        has_room
    }

    /// Why it takes no more requests; `None` while it does.
    pub(crate) fn failure(&self) -> Option<Arc<str>> {
        self.lock().failed.clone()
    }

    /// Takes no more requests, and fails those that wait.
    pub(crate) fn fail(&self, why: &str) {
        let mut state = self.lock();
        state.failed.get_or_insert_with(|| why.into());
        for request in state.waiting.drain(..) {
            request.fail();
        }
    }

    /// Cancels the requests of which `is_meant` is true, on the thread of the endpoint. Returns them.
    pub(crate) fn cancel(
        &self,
        endpoint: &mut Endpoint<UdpFabric>,
        is_meant: impl Fn(&Request) -> bool,
    ) -> Vec<Arc<Request>> {
        let state = &mut *self.lock();
        let all = state.waiting.iter().chain(&state.posted);
        let meant: Vec<_> = all
            .filter(|request| is_meant(request) && request.ending().is_none())
            .cloned()
            .collect();
        for request in &meant {
            // A queue pair that is gone has ended its messages.
            let _ = request.cancel(endpoint);
        }
        state.waiting.retain(|request| request.ending().is_none());
        meant
    }
}

/// Posts the requests of a connection, on the thread of the endpoint.
pub(crate) struct Poster {
    flow: Arc<Flow>,
    qp: QueuePair,
    /// `None` at the end that receives.
    picker: Option<SchemePicker>,
}

impl Poster {
    pub(crate) fn new(flow: Arc<Flow>, qp: QueuePair, picker: Option<SchemePicker>) -> Self {
        Self { flow, qp, picker }
    }

    /// Posts what can be posted.
    pub(crate) fn run(&mut self, endpoint: &mut Endpoint<UdpFabric>) -> TaskState {
        let flow = Arc::clone(&self.flow);
        let state = &mut *flow.lock();
        if state.failed.is_some() {
            return TaskState::Done;
        }
        let posted = self.post_all(endpoint, state);
        state.posted.retain(|request| request.ending().is_none());
        // A queue pair that is gone has no peer.
        match posted.and_then(|has_posted| endpoint.peer_id(self.qp).map(|_| has_posted)) {
            Ok(true) => TaskState::Worked,
            Ok(false) => TaskState::Idle,
            Err(error) => {
                state.failed = Some(error.to_string().into());
                for request in state.waiting.drain(..) {
                    request.fail();
                }
                TaskState::Done
            }
        }
    }

    /// Returns whether something was posted.
    fn post_all(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        state: &mut FlowState,
    ) -> Result<bool, Error> {
        let mut has_posted = false;
        while let Some(request) = state.waiting.front() {
            let left = state.waiting.len() + state.posted.len();
            match self.post(endpoint, request, left as u64) {
                Ok(()) => state.posted.extend(state.waiting.pop_front()),
                Err(Error::Retry { .. }) => break,
                Err(error) => return Err(error),
            }
            has_posted = true;
        }
        Ok(has_posted)
    }

    fn post(
        &mut self,
        endpoint: &mut Endpoint<UdpFabric>,
        request: &Request,
        left: u64,
    ) -> Result<(), Error> {
        let slice = request.slice;
        match &mut self.picker {
            Some(picker) => {
                let scheme = picker.pick(endpoint, self.qp, (slice.length(), left));
                let options = SendOptions {
                    scheme,
                    ..SendOptions::default()
                };
                request.set_send(endpoint.post_send(self.qp, slice, options)?);
            }
            None => request.set_receive(endpoint.post_recv(self.qp, slice)?),
        }
        Ok(())
    }
}

impl Drop for Poster {
    fn drop(&mut self) {
        self.flow.fail("the thread of the endpoint has ended");
    }
}
