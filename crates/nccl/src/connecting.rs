//! Connecting, which NCCL does not wait for: it asks again and again.

use std::sync::{Arc, Mutex, PoisonError};

use farwrite::fabric::threads;

use crate::comm::Comm;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::ports::Ports;

/// A connection that a thread makes.
pub(crate) struct Attempt {
    handle: Handle,
    result: Mutex<Option<Result<Comm, Failure>>>,
}

impl Attempt {
    /// Starts to connect.
    pub(crate) fn start(ports: Arc<Ports>, handle: Handle) -> Result<Arc<Self>, Failure> {
        let attempt = Arc::new(Self {
            handle,
            result: Mutex::new(None),
        });
        let shared = Arc::clone(&attempt);
        let connect = move || {
            let connected = ports.connect(&shared.handle);
            let mut result = shared.result.lock().unwrap_or_else(PoisonError::into_inner);
            *result = Some(connected);
        };
        let started = threads::spawn("nccl-connect", connect);
        started.map_err(|why| Failure::system(format!("starting a thread: {why}")))?;
        Ok(attempt)
    }

    /// Whether it connects to this handle.
    pub(crate) fn is_for(&self, handle: &Handle) -> bool {
        self.handle == *handle
    }

    /// The connection; `None` while it is being made.
    pub(crate) fn take(&self) -> Option<Result<Comm, Failure>> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take()
    }
}
