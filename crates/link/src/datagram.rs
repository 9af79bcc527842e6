//! The datagrams of a link.

use alloc::vec::Vec;
use core::net::SocketAddr;

/// A UDP datagram, with the fields of its IP header that the ICRC covers, and those that a box on
/// the path may read or rewrite (IBTA annex A17.3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Source address and port.
    pub src: SocketAddr,
    /// Destination address and port, of the same IP version as the source.
    pub dst: SocketAddr,
    /// The IPv4 type of service or IPv6 traffic class: DSCP and ECN.
    pub tos: u8,
    /// The IPv4 identification. Always 0 with IPv6.
    pub id: u16,
    /// The UDP payload.
    pub payload: Vec<u8>,
}

impl Datagram {
    /// Length of the IP datagram: the IP header without options (20 bytes, IPv6 40), the UDP header
    /// (8 bytes) and the payload.
    #[must_use]
    pub fn ip_bytes(&self) -> u64 {
        let headers = if self.src.is_ipv4() { 20 + 8 } else { 40 + 8 };
        headers + self.payload.len() as u64
    }
}
