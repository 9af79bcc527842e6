//! What stands between the program of a host and the network.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use farwrite_net::header::Header;
use farwrite_net::{Ecn, Frame, NodeId, Payload};

use super::HostOptions;

/// The ports of a host, as its [`NetHost`](super::NetHost) uses them.
pub struct NetPorts {
    pub(super) state: Rc<RefCell<State>>,
}

/// A datagram that waits for the program.
pub(super) struct Arrived {
    pub(super) at_ns: u64,
    pub(super) src: SocketAddr,
    pub(super) ipv4_id: u16,
    pub(super) ecn: Ecn,
    pub(super) payload: Arc<[u8]>,
}

/// A socket.
#[derive(Default)]
struct Inbox {
    arrived: VecDeque<Arrived>,
    bytes: u64,
}

/// What the fabric and the device of a host share.
pub(super) struct State {
    node: NodeId,
    addresses: Vec<SocketAddr>,
    pub(super) options: HostOptions,
    inboxes: Vec<Inbox>,
    outbox: VecDeque<Frame>,
    outbox_bytes: u64,
    pub(super) drops: u64,
}

impl State {
    pub(super) fn new(node: NodeId, addresses: Vec<SocketAddr>, options: HostOptions) -> Self {
        Self {
            node,
            inboxes: addresses.iter().map(|_| Inbox::default()).collect(),
            addresses,
            options,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            drops: 0,
        }
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Puts a frame into the inbox of its port. A frame for no port of this host vanishes, as does
    /// one whose payload a switch cut off. Returns whether it waits now.
    pub(super) fn arrive(&mut self, now_ns: u64, frame: &Frame) -> bool {
        let ports = self.addresses.iter().map(SocketAddr::port);
        let index = ports.clone().position(|port| port == frame.dst_port);
        let (Some(index), Ok(src)) = (index, farwrite_net::address_of(frame.src)) else {
            return false;
        };
        let Some(payload) = udp_payload(frame) else {
            return false;
        };
        let inbox = &mut self.inboxes[index];
        let bytes = payload.len() as u64;
        if inbox.bytes + bytes > self.options.recv_buffer_bytes {
            self.drops += 1;
            return false;
        }
        inbox.bytes += bytes;
        inbox.arrived.push_back(Arrived {
            at_ns: now_ns,
            src: SocketAddr::from((src, frame.src_port)),
            ipv4_id: frame.ipv4_id,
            ecn: frame.ecn,
            payload,
        });
        true
    }

    /// Takes up to `most` datagrams from the socket of a port; returns whether some are left.
    pub(super) fn take(&mut self, port: usize, most: usize, out: &mut Vec<Arrived>) -> bool {
        let inbox = &mut self.inboxes[port];
        let count = inbox.arrived.len().min(most);
        for arrived in inbox.arrived.drain(..count) {
            inbox.bytes -= arrived.payload.len() as u64;
            out.push(arrived);
        }
        !inbox.arrived.is_empty()
    }

    /// Whether the program may send more.
    pub(super) fn has_room(&self) -> bool {
        self.outbox_bytes < self.options.send_buffer_bytes
    }

    /// Queues a datagram.
    pub(super) fn send(&mut self, src_port: u16, to: (NodeId, u16), ipv4_id: u16, payload: &[u8]) {
        self.outbox_bytes += payload.len() as u64;
        self.outbox.push_back(Frame {
            src: self.node,
            dst: to.0,
            src_port,
            dst_port: to.1,
            ipv4_id,
            priority: self.options.priority,
            ecn: Ecn::Capable0,
            header: Header::Other([].into()),
            payload: Payload::Bytes(payload.into()),
        });
    }

    /// The next datagram to leave.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.outbox.pop_front()?;
        self.outbox_bytes -= u64::from(frame.payload.sent_bytes());
        Some(frame)
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.outbox.is_empty()
    }
}

/// The bytes behind the UDP header.
fn udp_payload(frame: &Frame) -> Option<Arc<[u8]>> {
    match (&frame.header, &frame.payload) {
        // What another host of this kind sent.
        (Header::Other(header), Payload::Bytes(bytes)) if header.is_empty() => {
            Some(Arc::clone(bytes))
        }
        _ => Some(frame.to_datagram().ok()?.payload.into()),
    }
}
