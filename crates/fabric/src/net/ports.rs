//! What stands between the program of a host and the network.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use farwrite_net::header::{Header, Roce};
use farwrite_net::{Ecn, Frame, NodeId, Payload};
use farwrite_wire::request::WriteImm;

use super::HostOptions;

/// Bytes of the IPv4 header, without options, and of the UDP header.
const IP_AND_UDP_BYTES: u32 = 20 + 8;

/// The ports of a host, as its [`NetHost`](super::NetHost) uses them.
pub struct NetPorts {
    pub(super) state: Rc<RefCell<State>>,
}

/// A datagram that waits for the program.
pub(super) struct Arrived {
    pub(super) at_ns: u64,
    pub(super) src: SocketAddr,
    pub(super) frame: Frame,
}

/// What a program hands over to be sent.
pub(super) enum Outgoing<'a> {
    /// The bytes of a whole packet.
    Bytes(&'a [u8]),
    /// A write whose payload does not exist.
    Ghost(WriteImm),
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
    pub(super) fn arrive(&mut self, now_ns: u64, frame: Frame) -> bool {
        let ports = self.addresses.iter().map(SocketAddr::port);
        let index = ports.clone().position(|port| port == frame.dst_port);
        let (Some(index), Ok(src)) = (index, farwrite_net::address_of(frame.src)) else {
            return false;
        };
        if matches!(frame.payload, Payload::Trimmed(_)) {
            return false;
        }
        let inbox = &mut self.inboxes[index];
        let bytes = udp_payload_bytes(&frame);
        if inbox.bytes + bytes > self.options.recv_buffer_bytes {
            self.drops += 1;
            return false;
        }
        inbox.bytes += bytes;
        inbox.arrived.push_back(Arrived {
            at_ns: now_ns,
            src: SocketAddr::from((src, frame.src_port)),
            frame,
        });
        true
    }

    /// Takes up to `most` datagrams from the socket of a port; returns whether some are left.
    pub(super) fn take(&mut self, port: usize, most: usize, out: &mut Vec<Arrived>) -> bool {
        let inbox = &mut self.inboxes[port];
        let count = inbox.arrived.len().min(most);
        for arrived in inbox.arrived.drain(..count) {
            inbox.bytes -= udp_payload_bytes(&arrived.frame);
            out.push(arrived);
        }
        !inbox.arrived.is_empty()
    }

    /// Whether the program may send more.
    pub(super) fn has_room(&self) -> bool {
        self.outbox_bytes < self.options.send_buffer_bytes
    }

    /// Queues a datagram.
    pub(super) fn send(&mut self, src_port: u16, to: (NodeId, u16), outgoing: &Outgoing<'_>) {
        let (header, payload) = match outgoing {
            Outgoing::Bytes(bytes) => (Header::Other([].into()), Payload::Bytes((*bytes).into())),
            Outgoing::Ghost(write) => (
                Header::Roce(Roce::of_write(write)),
                Payload::Ghost(write.payload_bytes),
            ),
        };
        let frame = Frame {
            src: self.node,
            dst: to.0,
            src_port,
            dst_port: to.1,
            ipv4_id: 0,
            priority: self.options.priority,
            ecn: Ecn::Capable0,
            header,
            payload,
        };
        self.outbox_bytes += udp_payload_bytes(&frame);
        self.outbox.push_back(frame);
    }

    /// The next datagram to leave.
    pub(super) fn pop(&mut self) -> Option<Frame> {
        let frame = self.outbox.pop_front()?;
        self.outbox_bytes -= udp_payload_bytes(&frame);
        Some(frame)
    }

    pub(super) fn has_frames(&self) -> bool {
        !self.outbox.is_empty()
    }
}

/// Bytes behind the UDP header.
fn udp_payload_bytes(frame: &Frame) -> u64 {
    u64::from(frame.ip_bytes() - IP_AND_UDP_BYTES)
}

/// The bytes behind the UDP header; made here for a frame whose headers are parsed, with zeros for a
/// payload that does not exist. `None` for what is no datagram.
pub(super) fn udp_payload(frame: &Frame) -> Option<Cow<'_, [u8]>> {
    match (&frame.header, &frame.payload) {
        // What another host of this kind sent.
        (Header::Other(header), Payload::Bytes(bytes)) if header.is_empty() => {
            Some(Cow::Borrowed(bytes))
        }
        _ => Some(Cow::Owned(frame.to_datagram().ok()?.payload)),
    }
}
