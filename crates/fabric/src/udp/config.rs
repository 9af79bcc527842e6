//! How a socket is made.

use std::net::SocketAddr;

/// How a socket is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketConfig {
    /// Address to bind, port 0 for a free one. `[::]` takes IPv4 too, and shows it as IPv4.
    pub bind: SocketAddr,
    /// Whether to let the kernel cut batches into packets (GSO) and join packets into batches
    /// (GRO) where it can. The environment variable `FARWRITE_UDP_OFFLOAD=0` overrules a `true`.
    pub offload: bool,
    /// Receive buffer to ask for, in bytes of packets. A pause of the receiver overflows it after
    /// bytes / rate: 32 MiB hold 27 ms of 10 Gbit/s.
    pub recv_buffer_bytes: usize,
    /// Send buffer to ask for, in bytes of packets.
    pub send_buffer_bytes: usize,
    /// Whether datagrams leave as ECN-capable, with ECT(0) (RFC 3168 section 5), so that a queue
    /// on the path can mark them instead of dropping them.
    pub ecn: bool,
}

impl SocketConfig {
    /// The defaults at an address: offloads, 32 MiB to receive, 4 MiB to send, ECT(0).
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

/// What the system granted to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Receive buffer, in bytes. The kernel counts its own overhead against twice this.
    pub recv_buffer_bytes: usize,
    /// Send buffer, in bytes, counted the same way.
    pub send_buffer_bytes: usize,
    /// Whether batches are cut into packets by the kernel.
    pub gso: bool,
    /// Whether packets are joined into batches by the kernel.
    pub gro: bool,
    /// Whether datagrams leave with ECT(0).
    pub ecn: bool,
}
