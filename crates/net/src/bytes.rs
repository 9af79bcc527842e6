//! Conversion between frames and the bytes of packets, for hosts and boxes that work on bytes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use farwrite_link::Datagram;
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::{Flow, Icrc, MixedFamilies};
use farwrite_wire::packet::{Packet, ParseError};
use farwrite_wire::request::pad_bytes;

use crate::header::{Header, HeaderError, Roce};
use crate::{Ecn, Frame, NodeId, Payload};

/// Node 0 has the address 10.0.0.1, node 1 the next one, and so on.
const FIRST_ADDRESS: u32 = 0x0A00_0001;
const LAST_ADDRESS: u32 = 0x0AFF_FFFE;

/// Why a frame cannot be converted to a datagram, or a datagram to a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BytesError {
    /// A switch trimmed the payload, so there is nothing to compute the ICRC over.
    #[error("a switch cut {bytes} bytes of payload off this frame; only its headers are left")]
    Trimmed {
        /// Bytes cut off.
        bytes: u32,
    },
    /// The frame is longer than an IPv4 datagram.
    #[error("an IPv4 datagram has at most 65535 bytes; this frame has {ip_bytes}")]
    TooLong {
        /// Bytes of the datagram that the frame would be.
        ip_bytes: u32,
    },
    /// The address does not belong to a node of the network.
    #[error("{0} is not the address of a node; nodes have 10.0.0.1 to 10.255.255.254")]
    Address(SocketAddr),
    /// The node number is beyond the address range.
    #[error("{0} has no address; nodes 0 to 16777213 have one")]
    Node(NodeId),
    /// The packet does not parse.
    #[error(transparent)]
    Packet(#[from] ParseError),
    /// The headers do not match the opcode.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Source and destination have different IP versions. The addresses above never do.
    #[error(transparent)]
    Families(#[from] MixedFamilies),
}

/// The IPv4 address of a node: 10.0.0.1 for node 0, and so on.
///
/// # Errors
/// [`BytesError::Node`].
pub fn address_of(node: NodeId) -> Result<Ipv4Addr, BytesError> {
    let address = FIRST_ADDRESS.checked_add(node.0);
    let address = address.filter(|&address| address <= LAST_ADDRESS);
    Ok(Ipv4Addr::from_bits(address.ok_or(BytesError::Node(node))?))
}

/// The node that has an address: the inverse of [`address_of`].
///
/// # Errors
/// [`BytesError::Address`].
pub fn node_of(address: SocketAddr) -> Result<NodeId, BytesError> {
    let bits = match address.ip() {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(_) => 0,
    };
    if (FIRST_ADDRESS..=LAST_ADDRESS).contains(&bits) {
        Ok(NodeId(bits - FIRST_ADDRESS))
    } else {
        Err(BytesError::Address(address))
    }
}

impl Frame {
    /// Makes the UDP datagram, with its ICRC. The payload of a ghost is zeros. The type of service
    /// holds the priority as class selector (RFC 2474) and the ECN field.
    ///
    /// # Errors
    /// [`BytesError`].
    pub fn to_datagram(&self) -> Result<Datagram, BytesError> {
        let src = SocketAddr::from((address_of(self.src)?, self.src_port));
        let dst = SocketAddr::from((address_of(self.dst)?, self.dst_port));
        if let Payload::Trimmed(bytes) = self.payload {
            return Err(BytesError::Trimmed { bytes });
        }
        let ip_bytes = self.ip_bytes();
        if ip_bytes > u32::from(u16::MAX) {
            return Err(BytesError::TooLong { ip_bytes });
        }
        let payload_bytes = self.payload.carried_bytes();
        let mut payload = Vec::with_capacity(ip_bytes as usize);
        match &self.header {
            Header::Roce(roce) => {
                let pad_bytes = pad_bytes(payload_bytes);
                roce.emit(pad_bytes, &mut payload)?;
                self.append_payload(&mut payload);
                payload.resize(payload.len() + usize::from(pad_bytes), 0);
                let udp_payload_bytes = payload.len() + ICRC_BYTES;
                let flow = Flow::new(src, dst)?;
                let icrc = Icrc::new(&flow, self.ipv4_id, udp_payload_bytes);
                let icrc = icrc.update(&payload).finish();
                payload.extend_from_slice(&icrc.to_le_bytes());
            }
            Header::Other(header) => {
                payload.extend_from_slice(header);
                self.append_payload(&mut payload);
            }
        }
        Ok(Datagram {
            src,
            dst,
            tos: self.priority.min(7) << 5 | self.ecn as u8,
            id: self.ipv4_id,
            payload,
        })
    }

    /// Makes the frame of a RoCEv2 datagram between two nodes. This does not check the ICRC; see
    /// [`farwrite_wire::icrc::verify`].
    ///
    /// # Errors
    /// [`BytesError`].
    pub fn from_datagram(datagram: &Datagram) -> Result<Self, BytesError> {
        let packet = Packet::parse(&datagram.payload)?;
        Ok(Self {
            src: node_of(datagram.src)?,
            dst: node_of(datagram.dst)?,
            src_port: datagram.src.port(),
            dst_port: datagram.dst.port(),
            ipv4_id: datagram.id,
            priority: datagram.tos >> 5,
            ecn: Ecn::of_tos(datagram.tos),
            header: Header::Roce(Roce::parse(&packet)?),
            payload: Payload::Bytes(packet.payload().into()),
            telemetry: None,
        })
    }

    fn append_payload(&self, out: &mut Vec<u8>) {
        match &self.payload {
            Payload::Bytes(bytes) => out.extend_from_slice(bytes),
            Payload::Ghost(bytes) => out.resize(out.len() + *bytes as usize, 0),
            Payload::Trimmed(_) => {}
        }
    }
}
