//! Who receives: the owner of an endpoint in its polls, or receive workers.

use std::sync::Arc;

use farwrite_fabric::Adapter;
use farwrite_fabric::contract::{Completion, Fabric, FabricError};

use crate::intake::{Inlet, Intake, Notice};

/// Who receives the packets of an endpoint.
#[derive(Debug)]
pub(crate) enum Reception {
    /// The owner.
    Polled {
        intake: Intake,
        /// Empty between polls, kept for its capacity.
        completions: Vec<Completion>,
    },
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
    /// Completions of a queue pair may come from now on.
    pub(crate) fn insert(&mut self, index: u32, inlet: &Arc<Inlet>) {
        match self {
            Self::Polled { intake, .. } => intake.insert(index, Arc::clone(inlet)),
        }
    }

    /// A queue pair has ended.
    pub(crate) fn remove(&mut self, index: u32, serial: u32) {
        match self {
            Self::Polled { intake, .. } => intake.remove(index, serial),
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
        }
    }
}
