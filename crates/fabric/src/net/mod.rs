//! Software NICs as hosts of a simulated network of switches.
//!
//! [`crate::sim`] joins two ends by a link. Here the ends are hosts of a [`farwrite_net::Network`].
//! Their packets share the queues with those of all other hosts, are marked, dropped and paused
//! there, and can take several paths.
//!
//! [`host`] makes two things for a host: the [`NetFabric`] for the program that runs on it, which
//! usually passes the fabric to an endpoint, and the [`NetPorts`]. The ports and the program
//! together make the [`NetHost`] that the network drives.

mod carrier;
mod device;
mod ports;

use farwrite_net::{BytesError, NodeId, address_of};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::nic::NicFabric;

pub use self::carrier::{NetCarrier, NetRx, NetTx};
pub use self::device::{NetHost, Program};
use self::ports::HostState;
pub use self::ports::NetPorts;

/// The software NIC of a host, made by [`host`].
pub type NetFabric = NicFabric<NetCarrier>;

/// Options of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// UDP port of the first socket. Further sockets have the numbers after it.
    pub first_port: u16,
    /// Number of sockets, at least 1.
    pub ports: u16,
    /// Traffic class of all packets, 0 to 7.
    pub priority: u8,
    /// Size of the send buffer in bytes of UDP payload. A sender that fills it must wait.
    pub send_buffer_bytes: u64,
    /// Size of each socket's receive buffer in bytes of UDP payload. Packets that do not fit are
    /// dropped and counted.
    pub recv_buffer_bytes: u64,
    /// Shortest interval between two polls of the program for arrived packets. Longer intervals
    /// simulate faster, and delay packets by up to the interval.
    pub poll_interval: Duration,
}

impl Default for HostOptions {
    /// One socket at port 49152, class 0, the buffer sizes of this crate's UDP sockets, and a
    /// program that is polled at most once per microsecond.
    fn default() -> Self {
        Self {
            first_port: 49_152,
            ports: 1,
            priority: 0,
            send_buffer_bytes: 4 << 20,
            recv_buffer_bytes: 32 << 20,
            poll_interval: Duration::from_micros(1),
        }
    }
}

/// The two parts of a host: the fabric for its program, and the ports for its [`NetHost`]. Numbers
/// and keys of the fabric follow from `seed`.
///
/// # Errors
/// [`BytesError::Node`] for a node without an address.
///
/// # Panics
/// If the number of ports in the options is 0, or exceeds the port numbers.
pub fn host(
    node: NodeId,
    options: HostOptions,
    seed: [u8; 32],
) -> Result<(NetFabric, NetPorts), BytesError> {
    let last = options
        .first_port
        .checked_add(options.ports.wrapping_sub(1));
    let last = last
        .filter(|_| options.ports > 0)
        .expect("ports that exist");
    let ip = address_of(node)?;
    let addresses = options.first_port..=last;
    let addresses = addresses.map(|port| SocketAddr::from((ip, port))).collect();
    let state = Rc::new(RefCell::new(HostState::new(node, addresses, options)));
    let fabric = NicFabric::new(NetCarrier::new(Rc::clone(&state)), seed);
    Ok((fabric, NetPorts { state }))
}
