//! The handshake (P12.3, P12.4), without clock and I/O: times, and the random numbers of P12.3, are
//! arguments. Ephemeral keys come from `snow`, which asks the operating system.

use std::net::SocketAddr;

mod budget;
mod cookie;
mod initiator;
mod noise;
mod packet;
mod responder;
#[cfg(test)]
mod tests;

pub(crate) use initiator::{Initiator, InitiatorFailure, Limits};
pub(crate) use noise::InitiatorKeys;
pub(crate) use packet::{Refusal, VERSION, number};
pub use responder::RefusalCounts;
pub(crate) use responder::{Asked, HandshakeId, Owner, Reaction, Responder, owner};

/// An opening with the cookie of a responder whose first secret is all ones, for fuzz targets. `rest` follows the
/// pattern.
pub(crate) fn opening_of(source: SocketAddr, number: u64, pattern: u8, rest: &[u8]) -> Vec<u8> {
    let cookie = cookie::CookieJar::new([1; 32]).make(0, source, number);
    let mut bytes = packet::prologue(number, &cookie, packet::Pattern::PreShared);
    if let Some(last) = bytes.last_mut() {
        *last = pattern;
    }
    bytes.extend_from_slice(rest);
    bytes
}

/// An exchange about a code with such a cookie, for fuzz targets.
pub(crate) fn exchange_of(source: SocketAddr, number: u64, rest: &[u8]) -> Vec<u8> {
    let cookie = cookie::CookieJar::new([1; 32]).make(0, source, number);
    packet::exchange(number, &cookie, rest)
}

/// A retry, for fuzz targets.
pub(crate) fn retry_of(number: u64) -> Vec<u8> {
    packet::retry(number, &[7; packet::COOKIE_BYTES])
}

/// An answer of a responder that accepts: its payload follows.
const ACCEPTED: u8 = 0;
/// An answer of a responder that does not know the initiator's public key.
const UNKNOWN_PEER: u8 = 1;
/// An answer of a responder that has no room.
const BUSY: u8 = 2;
