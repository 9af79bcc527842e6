//! The software UC NIC that all user-space fabrics share.
//!
//! It manages memory, windows and queue pairs, makes packets from work requests, and applies
//! arriving packets or counts why it does not. It has no socket and no clock: a [`Carrier`] moves
//! the packets.
//!
//! [`NicFabric`] is the control object. [`NicTx`] sends and [`NicRx`] receives through one port, on
//! any thread. Each queue and each worker keeps its own tables. The control object changes them
//! through lists of updates, so no packet waits for a lock that another port holds. Only two things
//! are shared: the regions, by a lock that a queue takes once per post, and the slots of windows,
//! by atomics.
//!
//! A queue pair can seal its writes ([`Fabric::seal_qp`](crate::contract::Fabric::seal_qp), P2.7).

mod burst;
mod carrier;
mod fabric;
mod numbers;
mod port;
mod queue_pairs;
mod regions;
mod rx;
mod sealing;
mod table;
mod tx;
mod update;
mod window_sets;
mod windows;

use std::net::SocketAddr;

pub use self::burst::{Burst, Packet, Seal};
pub use self::carrier::{Arrival, Carrier, CarrierRx, CarrierTx, Ends};
pub use self::fabric::NicFabric;
pub use self::rx::NicRx;
pub use self::tx::NicTx;

/// Largest number of entries of a scatter list. A burst of 64 packets then needs at most 64 x (head
/// + 8 + tail) = 640 pieces, within the 1024 that Linux accepts in one call.
pub const MAX_SGE: usize = 8;

/// UDP port of RoCEv2 (IBTA annex A17.9.2). RNICs receive on this port only.
pub const ROCE_PORT: u16 = 4791;

/// Bytes of the IP and UDP headers around a RoCEv2 packet (no IP options, no extension headers).
fn header_bytes(addr: SocketAddr) -> u64 {
    if addr.ip().to_canonical().is_ipv4() {
        28
    } else {
        48
    }
}
