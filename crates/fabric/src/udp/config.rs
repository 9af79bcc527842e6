//! Configuration of a socket.

use std::net::SocketAddr;

/// Configuration of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Address to bind; port 0 selects a free port. `[::]` also receives IPv4, and shows IPv4
    /// addresses as such.
    pub bind: SocketAddr,
    /// Whether the kernel may cut batches into packets (GSO) and join packets into batches (GRO),
    /// if it can. The environment variable `FARWRITE_UDP_OFFLOAD=0` overrides `true`.
    pub offload: bool,
    /// Requested receive buffer, in bytes of packets. If the receiver pauses, the buffer overflows
    /// after size / rate: 32 MiB hold 27 ms of 10 Gbit/s.
    pub recv_buffer_bytes: usize,
    /// Requested send buffer, in bytes of packets.
    pub send_buffer_bytes: usize,
    /// Whether datagrams are sent as ECN-capable, with ECT(0) (RFC 3168 section 5), so that a queue
    /// on the path can mark them instead of dropping them.
    pub ecn: bool,
}

impl SocketConfig {
    /// The defaults for an address: offloads, a receive buffer of 32 MiB, a send buffer of 4 MiB,
    /// ECT(0).
    #[must_use]
    pub const fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            offload: true,
            recv_buffer_bytes: 32 << 20,
            send_buffer_bytes: 4 << 20,
            ecn: true,
        }
    }

    pub(super) fn wants_offload(&self) -> bool {
        self.offload && std::env::var_os("FARWRITE_UDP_OFFLOAD").is_none_or(|value| value != "0")
    }
}

/// Options that the system granted to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Receive buffer, in bytes. The kernel allocates twice this value, for its own overhead.
    pub recv_buffer_bytes: usize,
    /// Send buffer, in bytes, with the same rule.
    pub send_buffer_bytes: usize,
    /// Whether the kernel cuts batches into packets.
    pub gso: bool,
    /// Whether the kernel joins packets into batches.
    pub gro: bool,
    /// Whether datagrams are sent with ECT(0).
    pub ecn: bool,
}
