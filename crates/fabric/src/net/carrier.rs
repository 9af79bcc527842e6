//! How the software NIC of a host in a network sends and receives.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use farwrite_net::node_of;
use farwrite_wire::icrc::Flow;

use super::ports::{HostArrival, HostState, SentDatagram, udp_payload};
use crate::contract::{Ecn, FabricError};
use crate::nic::{Arrival, Burst, Carrier, CarrierRx, CarrierTx};

/// Largest payload of a packet: the 65,535 bytes of an IPv4 datagram minus 28 bytes of IP and UDP
/// headers, 32 of RoCEv2 headers and 4 of ICRC, rounded down to a multiple of 4.
const MAX_MTU: u32 = (65_535 - 28 - 32 - 4) / 4 * 4;
/// Largest number of packets received by one poll.
const POLL_BATCH: usize = 256;

/// The ports of a host, for its software NIC.
pub struct NetCarrier {
    state: Rc<RefCell<HostState>>,
    addresses: Vec<SocketAddr>,
    /// For each port, whether its sending and receiving halves were handed out.
    taken: Vec<[bool; 2]>,
}

/// The sending half of a port.
pub struct NetTx {
    state: Rc<RefCell<HostState>>,
    /// Buffer for one packet, reused.
    packet: Vec<u8>,
}

/// The receiving half of a port.
pub struct NetRx {
    state: Rc<RefCell<HostState>>,
    address: SocketAddr,
    port: usize,
    /// Buffer for the packets of one poll, reused.
    batch: Vec<HostArrival>,
}

impl NetCarrier {
    pub(super) fn new(state: Rc<RefCell<HostState>>) -> Self {
        let addresses = state.borrow().addresses().to_vec();
        Self {
            taken: vec![[false; 2]; addresses.len()],
            addresses,
            state,
        }
    }

    /// Marks a half of a port as handed out. Returns whether this is the first time.
    fn take(&mut self, port: u16, half: usize) -> bool {
        let taken = self.taken.get_mut(usize::from(port));
        taken.is_some_and(|halves| !std::mem::replace(&mut halves[half], true))
    }
}

impl Carrier for NetCarrier {
    type Tx = NetTx;
    type Rx = NetRx;
    const GHOSTS: bool = true;

    fn ports(&self) -> u16 {
        self.state.borrow().options.ports
    }

    fn max_mtu(&self) -> u32 {
        MAX_MTU
    }

    fn local_addr(&self, port: u16) -> SocketAddr {
        self.addresses[usize::from(port)]
    }

    fn take_tx(&mut self, port: u16) -> Option<NetTx> {
        self.take(port, 0).then(|| NetTx {
            state: Rc::clone(&self.state),
            packet: Vec::new(),
        })
    }

    fn take_rx(&mut self, port: u16) -> Option<NetRx> {
        self.take(port, 1).then(|| NetRx {
            state: Rc::clone(&self.state),
            address: self.local_addr(port),
            port: usize::from(port),
            batch: Vec::new(),
        })
    }

    fn flow(&self, port: u16, _: Option<IpAddr>, remote: SocketAddr) -> Result<Flow, FabricError> {
        let unreachable = |want: String| FabricError::BadAttribute {
            name: "remote address",
            value: remote.to_string(),
            want,
        };
        node_of(remote).map_err(|error| unreachable(error.to_string()))?;
        let local = self.local_addr(port);
        Flow::new(local, remote).map_err(|error| unreachable(error.to_string()))
    }

    fn socket_drops(&self) -> [u64; 2] {
        [self.state.borrow().drops, 0]
    }
}

impl CarrierTx for NetTx {
    fn send(&mut self, burst: &Burst<'_>) -> Result<usize, FabricError> {
        let mut state = self.state.borrow_mut();
        let flow = burst.flow();
        let Ok(node) = node_of(flow.dst()) else {
            // `flow` has already refused such addresses.
            return Ok(burst.len());
        };
        let mut sent = 0;
        for packet in burst.packets() {
            if !state.has_room() {
                break;
            }
            let outgoing = match packet.as_ghost() {
                Some(write) => SentDatagram::Ghost(write),
                None => {
                    self.packet.clear();
                    packet.append_to(burst.sealed_as(), 0, &mut self.packet);
                    SentDatagram::Bytes(&self.packet)
                }
            };
            state.send(flow.src().port(), (node, flow.dst().port()), &outgoing);
            sent += 1;
        }
        Ok(sent)
    }
}

impl CarrierRx for NetRx {
    fn recv(&mut self, mut each: impl FnMut(&mut Arrival<'_>)) -> Result<bool, FabricError> {
        let mut state = self.state.borrow_mut();
        let more = state.take(self.port, POLL_BATCH, &mut self.batch);
        drop(state);
        for mut arrived in self.batch.drain(..) {
            let frame = &mut arrived.frame;
            let (ipv4_id, ecn) = (frame.ipv4_id, Ecn::of_tos(frame.ecn as u8));
            let flow = Flow::new(arrived.src, self.address);
            let mut room = Vec::new();
            if let (Ok(flow), Some(payload)) = (flow, udp_payload(frame, &mut room)) {
                each(&mut Arrival {
                    payload,
                    flow: &flow,
                    ipv4_id,
                    ecn,
                    arrived_ns: Some(arrived.at_ns),
                });
            }
        }
        Ok(more)
    }
}
