//! The parts of a channel that do no I/O, for the targets in `fuzz/`. Not part of the interface.

use std::sync::Arc;

use snow::StatelessTransportState;

use crate::Psk;
pub use crate::handshake::{Agreed, Failed, Handshake, Progress};
pub use crate::records::{RecordOpener, RecordSealer};

/// A channel whose ends have agreed on keys.
pub struct Keys {
    sender: (Arc<StatelessTransportState>, u64),
    receiver: (Arc<StatelessTransportState>, u64),
}

impl Keys {
    /// Runs a handshake.
    #[must_use]
    pub fn agree(psk: &Psk) -> Option<Self> {
        let (mut near, first) = Handshake::initiate(&psk.into()).ok()?;
        let mut far = Handshake::respond(Arc::new(psk.into()));
        let answer = far.receive(&mut &first[..]).ok()?;
        let proof = near.receive(&mut &answer.send[..]).ok()?;
        let end = far.receive(&mut &proof.send[..]).ok()?;
        let (near, far) = (proof.agreed?, end.agreed?);
        Some(Self {
            sender: (Arc::new(near.state), near.sent),
            receiver: (Arc::new(far.state), far.received),
        })
    }

    /// An initiator's records from the first on, and the responder that reads them.
    #[must_use]
    pub fn records(&self) -> (RecordSealer, RecordOpener) {
        let (state, next) = &self.sender;
        let outgoing = RecordSealer::new(Arc::clone(state), *next);
        let (state, next) = &self.receiver;
        (outgoing, RecordOpener::new(Arc::clone(state), *next))
    }
}
