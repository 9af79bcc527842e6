//! The software UC NIC that the user-space fabrics share.
//!
//! It holds memory, windows and queue pairs, makes packets of work requests, and applies the
//! packets that arrive or counts why not. It has no socket and no clock: a [`Carrier`] moves the
//! packets.
//!
//! [`NicFabric`] is the control object; [`NicTx`] and [`NicRx`] send and receive through one port
//! each, on any thread. A queue or worker keeps tables of its own, which the control object changes
//! through a list of updates, so no packet waits for a lock that another port holds. Two things are
//! shared: the regions, by a lock that a queue takes once per post, and the slots of windows, by
//! atomics.

mod burst;
mod carrier;
mod fabric;
mod numbers;
mod port;
mod queue_pairs;
mod regions;
mod rx;
mod table;
mod tx;
mod window_sets;
mod windows;

use std::net::SocketAddr;

pub use self::burst::{Burst, Packet, Seal};
pub use self::carrier::{Arrival, Carrier, CarrierRx, CarrierTx};
pub use self::fabric::NicFabric;
pub use self::rx::NicRx;
pub use self::tx::NicTx;

/// Most entries of a scatter list. A burst of 64 packets then needs at most 64 x (head + 8 + tail)
/// = 640 pieces, within the 1024 that Linux takes in one call.
pub const MAX_SGE: usize = 8;

/// Most regions, queue pairs, window sets, and slots of one set. A guessed key then hits one of 2^32
/// with probability 2^-12 at worst, and a guessed number one of 2^24 queue pairs with probability
/// 2^-4. `docs/security.md` says what that means.
const MOST: usize = 1 << 20;

/// UDP port of RoCEv2 (IBTA annex A17.9.2). RNICs know no other.
pub(crate) const ROCE_PORT: u16 = 4791;

/// Bytes of the IP and UDP headers around a RoCEv2 packet (no IP options, no extension headers).
fn header_bytes(addr: SocketAddr) -> u64 {
    if addr.ip().to_canonical().is_ipv4() {
        28
    } else {
        48
    }
}
