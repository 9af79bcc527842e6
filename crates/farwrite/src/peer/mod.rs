//! Peers. A peer is another endpoint instance. All queue pairs to it share its state.
//!
//! The state has a sending half ([`sending`]): one controller, one token bucket and a log of what is
//! in flight, for all queue pairs together. Its receiving half ([`reports`]) counts what arrives,
//! and reports the counts to the sender.

mod controller;
mod credit_grants;
mod credit_requests;
mod drain;
mod drops;
mod flight;
mod host_waits;
mod packet_log;
mod received;
mod reports;
mod send_queue;
mod sending;
mod state;
mod stats;
mod table;

use farwrite_wire::packet::ip_udp_bytes;
use farwrite_wire::request::WriteImm;
use farwrite_wire::sealing::SEALING_BYTES;

pub(crate) use flight::ReportedPacket;
pub(crate) use packet_log::Run;
pub(crate) use reports::NewestPacket;
pub(crate) use send_queue::{PlaceInQueue, TurnEnd};
pub(crate) use state::{PeerState, RoundTrip};
pub use stats::{EcnField, PeerStats, SendLimit};
pub(crate) use table::PeerTable;

/// Bytes of a data packet's UDP datagram other than the payload: BTH, RETH, immediate and ICRC.
pub const ROCE_OVERHEAD_BYTES: u32 = WriteImm::OVERHEAD_BYTES;

/// Bytes of a data packet on the wire other than the payload: [`ROCE_OVERHEAD_BYTES`], UDP and IP.
///
/// ```
/// // What fits into an Ethernet frame of 1500 bytes over IPv4.
/// assert_eq!(1500 - farwrite::packet_overhead_bytes(true), 1436);
/// ```
#[must_use]
pub const fn packet_overhead_bytes(is_ipv4: bool) -> u32 {
    ip_udp_bytes(is_ipv4) + ROCE_OVERHEAD_BYTES
}

/// The same of sealed packets ([`Sealing`](crate::Sealing)).
#[must_use]
pub const fn sealed_overhead_bytes(is_ipv4: bool) -> u32 {
    packet_overhead_bytes(is_ipv4) + SEALING_BYTES
}

/// The share of a rate on the wire that is payload, if packets have `mtu` bytes of payload and
/// `overhead_bytes` of anything else.
///
/// ```
/// use farwrite::{payload_share, packet_overhead_bytes, sealed_overhead_bytes};
///
/// assert_eq!(payload_share(4096, packet_overhead_bytes(true)), 4096.0 / 4160.0);
/// assert_eq!(payload_share(4096, sealed_overhead_bytes(true)), 4096.0 / 4184.0);
/// ```
#[must_use]
pub fn payload_share(mtu: u32, overhead_bytes: u32) -> f64 {
    f64::from(mtu) / (f64::from(mtu) + f64::from(overhead_bytes))
}
