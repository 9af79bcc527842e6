//! Receives packets: in the polls of an endpoint's owner, or in receive workers.

use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Completion, Fabric, FabricError, RealTime, Waker};

use crate::completions::{CompletionHandler, Notice, PairReceive};
use crate::handle::QueuePair;
use crate::receive_workers::Workers;

/// Who receives the packets of an endpoint.
#[derive(Debug)]
pub(crate) enum Receiving {
    /// The owner receives in its polls.
    Polled {
        handler: CompletionHandler,
        /// Empty between polls, kept for its capacity.
        completions: Vec<Completion>,
    },
    /// Threads receive, one for each port.
    Threads(Workers),
    /// Nothing receives any more, for the given reason.
    Broken(String),
}

impl Default for Receiving {
    fn default() -> Self {
        Self::Polled {
            handler: CompletionHandler::default(),
            completions: Vec::new(),
        }
    }
}

impl Receiving {
    /// Moves the receive workers of the fabric to threads. `owner` wakes the owner. Does nothing if
    /// there are threads already.
    ///
    /// # Errors
    /// The same as for [`Workers::start`].
    pub(crate) fn start_threads<F: RealTime<Rx: 'static>>(
        &mut self,
        fabric: &mut Adapter<F>,
        owner: &Waker,
    ) -> Result<(), FabricError> {
        match self {
            Self::Polled { handler, .. } => {
                match Workers::start(fabric.take_workers(), handler, owner) {
                    Ok(workers) => *self = Self::Threads(workers),
                    Err(error) => {
                        *self = Self::Broken(error.to_string());
                        return Err(error);
                    }
                }
                Ok(())
            }
            Self::Threads(_) => Ok(()),
            Self::Broken(reason) => Err(broken(reason)),
        }
    }

    /// Completions of the queue pair may arrive from now on.
    pub(crate) fn insert(&mut self, index: u32, receive: &Arc<PairReceive>) {
        match self {
            Self::Polled { handler, .. } => handler.insert(index, Arc::clone(receive)),
            Self::Threads(workers) => workers.insert(index, receive),
            Self::Broken(_) => {}
        }
    }

    /// Removes a queue pair that has ended.
    pub(crate) fn remove(&mut self, pair: QueuePair) {
        match self {
            Self::Polled { handler, .. } => handler.remove(pair),
            Self::Threads(workers) => workers.remove(pair),
            Self::Broken(_) => {}
        }
    }

    /// Processes received packets, and appends notices for the owner. Returns whether more packets
    /// may be waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a port has failed permanently.
    pub(crate) fn take<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        notices: &mut Vec<Notice>,
    ) -> Result<bool, FabricError> {
        match self {
            Self::Polled {
                handler,
                completions,
            } => {
                let more = fabric.poll(completions);
                handler.take(completions, notices);
                fabric.end_batch();
                more
            }
            Self::Threads(workers) => {
                let taken = workers.take(notices);
                if let Err(error) = &taken {
                    *self = Self::Broken(error.to_string());
                }
                taken.map(|()| false)
            }
            Self::Broken(reason) => Err(broken(reason)),
        }
    }
}

/// Returns the error for calls after receiving has ended. The failure was already reported once.
fn broken(reason: &str) -> FabricError {
    FabricError::Io {
        what: "receiving".into(),
        source: std::io::Error::other(reason),
    }
}
