//! How an end of a simulated network sends and receives.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use farwrite_link::Datagram;
use farwrite_wire::icrc::Flow;

use super::network::{NetworkState, SimArrival, transmit};
use crate::contract::{Ecn, FabricError};
use crate::nic::{Arrival, Burst, Carrier, CarrierRx, CarrierTx};

/// Largest payload of a packet: the 65,535 bytes of an IPv4 datagram minus 28 bytes of IP and UDP
/// headers, 32 of RoCEv2 headers and 4 of ICRC, rounded down to a multiple of 4.
const MAX_MTU: u32 = (65_535 - 28 - 32 - 4) / 4 * 4;

/// Largest number of packets received by one poll.
const POLL_BATCH: usize = 256;

/// Number of packets of a burst after which the IPv4 identification starts again at 0, as in bursts
/// that a kernel cuts into packets.
const BURST_IDS: u16 = 64;

/// A simulated host's ports.
pub struct SimCarrier {
    host: Rc<HostPorts>,
    /// For each port, whether its sending and receiving halves were handed out.
    taken: Vec<[bool; 2]>,
}

/// State that the halves of a host's ports share. The sockets close when the last half is dropped.
struct HostPorts {
    network: Rc<RefCell<NetworkState>>,
    ports: Vec<SocketAddr>,
}

/// The sending half of a simulated port.
pub struct SimTx {
    host: Rc<HostPorts>,
}

/// The receiving half of a simulated port.
pub struct SimRx {
    host: Rc<HostPorts>,
    addr: SocketAddr,
    /// Buffer for the packets of one poll, reused.
    batch: Vec<SimArrival>,
}

impl SimCarrier {
    pub(super) fn new(network: Rc<RefCell<NetworkState>>, ports: Vec<SocketAddr>) -> Self {
        Self {
            taken: vec![[false; 2]; ports.len()],
            host: Rc::new(HostPorts { network, ports }),
        }
    }

    /// Marks a half of a port as handed out. Returns whether this is the first time.
    fn take(&mut self, port: u16, half: usize) -> bool {
        let taken = self.taken.get_mut(usize::from(port));
        taken.is_some_and(|halves| !std::mem::replace(&mut halves[half], true))
    }
}

impl Carrier for SimCarrier {
    type Tx = SimTx;
    type Rx = SimRx;
    const GHOSTS: bool = true;

    fn ports(&self) -> u16 {
        // The number of ports was given as a `u16`.
        u16::try_from(self.host.ports.len()).unwrap_or(u16::MAX)
    }

    fn max_mtu(&self) -> u32 {
        MAX_MTU
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.host.ports[usize::from(port)]
    }

    fn take_tx(&mut self, port: u16) -> Option<SimTx> {
        let host = Rc::clone(&self.host);
        self.take(port, 0).then_some(SimTx { host })
    }

    fn take_rx(&mut self, port: u16) -> Option<SimRx> {
        self.take(port, 1).then(|| SimRx {
            host: Rc::clone(&self.host),
            addr: self.local_addr(port),
            batch: Vec::new(),
        })
    }

    fn flow(&self, port: u16, _: Option<IpAddr>, remote: SocketAddr) -> Result<Flow, FabricError> {
        let local = self.local_addr(port);
        Flow::new(local, remote).map_err(|_| FabricError::BadAttribute {
            name: "remote address",
            value: remote.to_string(),
            want: format!("an address of the IP version of {local}"),
        })
    }

    fn socket_drops(&self) -> [u64; 2] {
        [0, 0]
    }
}

impl CarrierTx for SimTx {
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        let flow = burst.flow();
        let ids = if flow.src().is_ipv4() { BURST_IDS } else { 1 };
        for (packet, id) in burst.packets().zip((0..ids).cycle()) {
            let mut payload = Vec::with_capacity(packet.udp_bytes());
            packet.append_to(burst.sealed_as(), id, &mut payload);
            let datagram = Datagram {
                src: flow.src(),
                dst: flow.dst(),
                tos: Ecn::Ect0.bits(),
                id,
                payload,
            };
            transmit(&self.host.network, datagram);
        }
        Ok(burst.len())
    }
}

impl CarrierRx for SimRx {
    fn recv(&mut self, mut each: impl FnMut(&mut Arrival<'_>)) -> Result<bool, FabricError> {
        let mut network = self.host.network.borrow_mut();
        let more = network.take(self.addr, POLL_BATCH, &mut self.batch);
        drop(network);
        for mut arrived in self.batch.drain(..) {
            let datagram = &mut arrived.datagram;
            if let Ok(flow) = Flow::new(datagram.src, datagram.dst) {
                each(&mut Arrival {
                    payload: &mut datagram.payload,
                    flow: &flow,
                    ipv4_id: datagram.id,
                    ecn: Ecn::of_tos(datagram.tos),
                    arrived_ns: Some(arrived.at_ns),
                });
            }
        }
        Ok(more)
    }
}

impl Drop for HostPorts {
    fn drop(&mut self) {
        self.network.borrow_mut().close(&self.ports);
    }
}
