//! The ports of a host: buffers between its program and the network.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use farwrite_net::header::{Header, Roce};
use farwrite_net::{Ecn, Frame, NodeId, Payload};
use farwrite_wire::request::WriteImm;

use super::HostOptions;

/// Bytes of the IPv4 header, without options, and of the UDP header.
const IP_AND_UDP_BYTES: u32 = 20 + 8;

/// The ports of a host, for its [`NetHost`](super::NetHost).
pub struct NetPorts {
    pub(super) state: Rc<RefCell<HostState>>,
}

/// A datagram that waits for the program.
pub(super) struct HostArrival {
    pub(super) at_ns: u64,
    pub(super) src: SocketAddr,
    pub(super) frame: Frame,
}

pub(super) enum SentDatagram<'a> {
    /// The bytes of a whole packet.
    Bytes(&'a [u8]),
    /// A write with a ghost payload.
    Ghost(WriteImm),
}

/// The receive buffer of a socket.
#[derive(Default)]
struct Inbox {
    arrived: VecDeque<HostArrival>,
    bytes: u64,
}

pub(super) struct HostState {
    node: NodeId,
    addresses: Vec<SocketAddr>,
    pub(super) options: HostOptions,
    inboxes: Vec<Inbox>,
    outbox: VecDeque<Frame>,
    outbox_bytes: u64,
    pub(super) drops: u64,
}

impl HostState {
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

    /// Puts a frame into the receive buffer of its port, and returns whether it was stored. A frame
    /// for an unknown port is discarded, and so is a frame whose payload a switch cut off.
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
        inbox.arrived.push_back(HostArrival {
            at_ns: now_ns,
            src: SocketAddr::from((src, frame.src_port)),
            frame,
        });
        true
    }

    /// Removes up to `most` datagrams from the receive buffer of a port. Returns whether some are
    /// left.
    pub(super) fn take(&mut self, port: usize, most: usize, out: &mut Vec<HostArrival>) -> bool {
        let inbox = &mut self.inboxes[port];
        let count = inbox.arrived.len().min(most);
        for arrived in inbox.arrived.drain(..count) {
            inbox.bytes -= udp_payload_bytes(&arrived.frame);
            out.push(arrived);
        }
        !inbox.arrived.is_empty()
    }

    /// Whether the send buffer has room.
    pub(super) fn has_room(&self) -> bool {
        self.outbox_bytes < self.options.send_buffer_bytes
    }

    pub(super) fn send(&mut self, src_port: u16, to: (NodeId, u16), outgoing: &SentDatagram<'_>) {
        let (header, payload) = match outgoing {
            SentDatagram::Bytes(bytes) => {
                (Header::Other([].into()), Payload::Bytes((*bytes).into()))
            }
            SentDatagram::Ghost(write) => (
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
            telemetry: None,
        };
        self.outbox_bytes += udp_payload_bytes(&frame);
        self.outbox.push_back(frame);
    }

    /// Removes the next datagram from the send buffer.
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

/// The bytes after the UDP header. For a frame with parsed headers they are built in `room`, with zeros
/// for a ghost payload. `None` for a frame that is not a datagram.
pub(super) fn udp_payload<'a>(frame: &'a mut Frame, room: &'a mut Vec<u8>) -> Option<&'a mut [u8]> {
    // A frame from another host of this kind has no headers of its own.
    let is_whole = matches!(&frame.header, Header::Other(header) if header.is_empty());
    if !is_whole || !matches!(frame.payload, Payload::Bytes(_)) {
        *room = frame.to_datagram().ok()?.payload;
        return Some(room);
    }
    match &mut frame.payload {
        Payload::Bytes(bytes) => Some(Arc::make_mut(bytes)),
        _ => None,
    }
}
