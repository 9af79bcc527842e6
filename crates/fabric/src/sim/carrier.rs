//! How an end of a simulated network sends and receives.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite_link::Datagram;
use farwrite_wire::icrc::Flow;

use super::network::{State, transmit};
use crate::contract::{Completion, FabricError};
use crate::nic::{Arrival, Burst, Carrier, Nic};

/// Largest payload of a packet: what fits the 65,535 bytes of an IPv4 datagram with 28 bytes of IP
/// and UDP headers, 32 of RoCEv2 headers and 4 of ICRC, as a multiple of 4.
const MAX_MTU: u32 = (65_535 - 28 - 32 - 4) / 4 * 4;

/// Most packets taken in by one poll.
const POLL_BATCH: usize = 256;

/// Packets of one burst after which the IPv4 identification starts over, as in bursts that a kernel
/// cuts into packets.
const BURST_IDS: u16 = 64;

/// A simulated host's ports.
pub struct SimCarrier {
    network: Rc<RefCell<State>>,
    ports: Vec<SocketAddr>,
    /// What one poll takes in; kept for its capacity.
    batch: Vec<Datagram>,
}

impl SimCarrier {
    pub(super) fn new(network: Rc<RefCell<State>>, ports: Vec<SocketAddr>) -> Self {
        Self {
            network,
            ports,
            batch: Vec::new(),
        }
    }
}

impl Carrier for SimCarrier {
    fn ports(&self) -> u16 {
        // As many as were asked for by a u16.
        u16::try_from(self.ports.len()).unwrap_or(u16::MAX)
    }

    fn max_mtu(&self) -> u32 {
        MAX_MTU
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.ports[usize::from(port)]
    }

    fn join(&mut self, port: u16, remote: SocketAddr) -> Result<(), FabricError> {
        flow(self.local_addr(port), remote).map(drop)
    }

    fn part(&mut self, _port: u16, _remote: SocketAddr) {}

    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        let flow = flow(self.local_addr(burst.port()), burst.remote())?;
        let ids = if flow.src().is_ipv4() { BURST_IDS } else { 1 };
        for (packet, id) in burst.packets().zip((0..ids).cycle()) {
            let mut payload = Vec::with_capacity(packet.udp_bytes());
            packet.append_to(&flow, id, &mut payload);
            let datagram = Datagram {
                src: flow.src(),
                dst: flow.dst(),
                tos: 0,
                id,
                payload,
            };
            transmit(&self.network, datagram);
        }
        Ok(burst.len())
    }

    fn poll(&mut self, nic: &mut Nic, out: &mut Vec<Completion>) -> Result<bool, FabricError> {
        let mut more = false;
        for (port, &addr) in (0..).zip(&self.ports) {
            more |= self
                .network
                .borrow_mut()
                .take(addr, POLL_BATCH, &mut self.batch);
            for datagram in self.batch.drain(..) {
                if let Ok(flow) = Flow::new(datagram.src, datagram.dst) {
                    let arrival = Arrival {
                        payload: &datagram.payload,
                        flow: &flow,
                        port,
                        ipv4_id: datagram.id,
                    };
                    nic.receive(&arrival, out);
                }
            }
        }
        Ok(more)
    }

    fn socket_drops(&self) -> u64 {
        0
    }
}

impl Drop for SimCarrier {
    fn drop(&mut self) {
        self.network.borrow_mut().close(&self.ports);
    }
}

fn flow(local: SocketAddr, remote: SocketAddr) -> Result<Flow, FabricError> {
    Flow::new(local, remote).map_err(|_| FabricError::BadAttribute {
        name: "remote address",
        value: remote.to_string(),
        want: format!("an address of the IP version of {local}"),
    })
}
