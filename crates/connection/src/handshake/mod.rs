//! The handshake (P12.3, P12.4), without clock and I/O: times, and the random numbers of P12.3, are
//! arguments. Ephemeral keys come from `snow`, which asks the operating system.

mod budget;
mod cookie;
mod initiator;
mod noise;
mod packet;
mod responder;
#[cfg(test)]
mod tests;

pub(crate) use initiator::{Initiator, InitiatorFailure};
pub(crate) use noise::InitiatorKeys;
pub(crate) use packet::{Refusal, VERSION};
pub use responder::RefusalCounts;
pub(crate) use responder::{HandshakeId, Reaction, Responder};

/// An answer of a responder that accepts: its payload follows.
const ACCEPTED: u8 = 0;
/// An answer of a responder that does not know the initiator's public key.
const UNKNOWN_PEER: u8 = 1;
/// An answer of a responder that has no room.
const BUSY: u8 = 2;
