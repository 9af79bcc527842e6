//! Who receives: the owner of an endpoint in its polls, or receive workers.

use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Completion, Fabric, FabricError, RealTime, Waker};

use crate::intake::{Inlet, Intake, Notice};
use crate::workers::Workers;

/// Who receives the packets of an endpoint.
#[derive(Debug)]
pub(crate) enum Reception {
    /// The owner.
    Polled {
        intake: Intake,
        /// Empty between polls, kept for its capacity.
        completions: Vec<Completion>,
    },
    /// Threads, one for each port.
    Threads(Workers),
    /// Nobody any more, for this reason.
    Broken(String),
}

impl Default for Reception {
    fn default() -> Self {
        Self::Polled {
            intake: Intake::default(),
            completions: Vec::new(),
        }
    }
}

impl Reception {
    /// Hands the receive workers of the fabric to threads; `owner` wakes the owner. Changes nothing
    /// if there are threads.
    ///
    /// # Errors
    /// As [`Workers::start`].
    pub(crate) fn start_threads<F: RealTime<Rx: 'static>>(
        &mut self,
        fabric: &mut Adapter<F>,
        owner: &Waker,
    ) -> Result<(), FabricError> {
        match self {
            Self::Polled { intake, .. } => {
                match Workers::start(fabric.take_workers(), intake, owner) {
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

    /// Completions of a queue pair may come from now on.
    pub(crate) fn insert(&mut self, index: u32, inlet: &Arc<Inlet>) {
        match self {
            Self::Polled { intake, .. } => intake.insert(index, Arc::clone(inlet)),
            Self::Threads(workers) => workers.insert(index, inlet),
            Self::Broken(_) => {}
        }
    }

    /// A queue pair has ended.
    pub(crate) fn remove(&mut self, index: u32, serial: u32) {
        match self {
            Self::Polled { intake, .. } => intake.remove(index, serial),
            Self::Threads(workers) => workers.remove(index, serial),
            Self::Broken(_) => {}
        }
    }

    /// Takes packets in, and appends what the owner has to look at. Returns whether more may be
    /// waiting.
    ///
    /// # Errors
    /// [`FabricError::Io`] when a port is broken for good.
    pub(crate) fn take<F: Fabric>(
        &mut self,
        fabric: &mut Adapter<F>,
        notices: &mut Vec<Notice>,
    ) -> Result<bool, FabricError> {
        match self {
            Self::Polled {
                intake,
                completions,
            } => {
                let more = fabric.poll(completions);
                intake.take(completions, notices);
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

/// Receiving has ended, as it was reported before.
fn broken(reason: &str) -> FabricError {
    FabricError::Io {
        what: "receiving".into(),
        source: std::io::Error::other(reason),
    }
}
