//! Software NICs as hosts of a simulated network of switches.
//!
//! [`crate::sim`] joins two ends by a link. Here the ends are hosts of a [`farwrite_net::Network`]:
//! their packets wait in the same queues as those of all other hosts, are marked, dropped and
//! paused there, and take any of several paths.
//!
//! [`host`] makes two things for a host. The [`NetFabric`] is for the program that runs on it,
//! which usually gives it to an endpoint. The [`NetPorts`], together with that program, become the
//! [`NetHost`] that the network drives.

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
pub use self::ports::NetPorts;
use self::ports::State;

/// The software NIC of a host, made by [`host`].
pub type NetFabric = NicFabric<NetCarrier>;

/// What a host is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// UDP port of the first socket; those of the others follow.
    pub first_port: u16,
    /// Number of sockets, at least 1.
    pub ports: u16,
    /// Traffic class of all packets, 0 to 7.
    pub priority: u8,
    /// Bytes of UDP payload that wait at most to be sent. A sender that exceeds them waits.
    pub send_buffer_bytes: u64,
    /// Bytes of UDP payload that wait at most in a socket for the program. What exceeds them is
    /// dropped and counted.
    pub recv_buffer_bytes: u64,
    /// Shortest time between two polls of the program for packets that came: longer ones simulate
    /// faster, and delay packets by as much.
    pub poll_interval: Duration,
}

impl Default for HostOptions {
    /// One socket at port 49152, class 0, the buffers of a UDP socket of this crate, and a program
    /// that is polled at most once a microsecond.
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

/// The two sides of a host: the fabric for its program, and the ports for its [`NetHost`]. Numbers
/// and keys of the fabric follow from `seed`.
///
/// # Errors
/// [`BytesError::Node`] for a node without an address.
///
/// # Panics
/// If the options have no ports, or more than there are numbers for.
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
    let state = Rc::new(RefCell::new(State::new(node, addresses, options)));
    let fabric = NicFabric::new(NetCarrier::new(Rc::clone(&state)), seed);
    Ok((fabric, NetPorts { state }))
}
