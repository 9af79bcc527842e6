//! The parts of a channel that do no I/O, for the targets in `fuzz/`. Not part of the interface.

use std::sync::Arc;

use crate::Psk;
pub use crate::handshake::{Agreed, Failed, Handshake, Progress};
pub use crate::records::{RecordOpener, RecordSealer, decode};

/// An initiator's records, and the responder that reads them.
#[must_use]
pub fn records(psk: &Psk) -> Option<(RecordSealer, RecordOpener)> {
    let (mut near, first) = Handshake::initiate(psk).ok()?;
    let mut far = Handshake::respond();
    let answer = far.receive(psk, &mut &first[..]).ok()?;
    let proof = near.receive(psk, &mut &answer.send[..]).ok()?;
    let end = far.receive(psk, &mut &proof.send[..]).ok()?;
    let (near, far) = (proof.agreed?, end.agreed?);
    let outgoing = RecordSealer::new(Arc::new(near.state), near.sent);
    let incoming = RecordOpener::new(Arc::new(far.state), far.received);
    Some((outgoing, incoming))
}
