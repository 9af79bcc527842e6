//! The wire format of route packets (P6.2).

use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use constant_time_eq::constant_time_eq_16;
use farwrite_wire::icrc::{self, Flow};
use farwrite_wire::opcode::ROUTE_PACKET;

/// Length of a route packet without padding. Every reply has this length.
pub const MIN_BYTES: usize = TAG + TAG_BYTES + TRAILER_BYTES;
/// Length of the trailer of a route packet. The tag does not cover it, because a relay that
/// recomputes ICRCs changes the last four bytes of every datagram (P2.5).
pub const TRAILER_BYTES: usize = 4;
const INDEX: usize = 56;
const TAG: usize = 60;
const TAG_BYTES: usize = 16;
/// Flag of a reply: its sender has accepted the source address of the probe.
const ACCEPTED: u8 = 1;
/// Flag of a reply: a relay on the path explains the trailer of the probe.
const RESEALED: u8 = 2;
/// Flag: no packet of a queue pair has come to the sender for some time that it could verify.
const HEARS_NOTHING: u8 = 4;
/// The highest IPv4 identification of a program (P2.5).
const HIGHEST_ID: u16 = 63;

/// The type of a route packet, with the fields of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// Asks the peer for a reply.
    Probe,
    /// Answers a probe.
    Reply {
        /// [`RoutePacket::counter`] of the probe.
        echo: u64,
        /// Whether the peer has accepted the source address of the probe: it sends to this address,
        /// and accepts data from it.
        is_accepted: bool,
        /// Whether a relay on the path seems to have recomputed the ICRC of the probe for other addresses.
        is_resealed: bool,
    },
}

/// The content of a route packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutePacket {
    /// Probe or reply.
    pub kind: PacketType,
    /// The pair of ports of the session: the number of its channel.
    pub channel: u8,
    /// The index of this route among all routes of the receiving socket. The receiver has chosen it.
    pub index: u16,
    /// Serial number among the sender's packets on this route. Each one is accepted once.
    pub counter: u64,
    /// Whether no packet of a queue pair has come to the sender for some time that it could verify.
    pub hears_nothing: bool,
    /// Reply: the source address with which the probe arrived. Probe: the sender's own address.
    pub from: SocketAddr,
    /// Reply: the destination address with which the probe arrived. Probe: its destination.
    pub to: SocketAddr,
}

/// Why a datagram is not a valid route packet of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// The first byte is wrong.
    #[error("the datagram is not a route packet")]
    Other,
    /// The datagram is too short, or its length is not the stated one.
    #[error(
        "a route packet has {have} bytes: at least {MIN_BYTES} and exactly the stated length are needed"
    )]
    Length {
        /// Length of the datagram.
        have: usize,
    },
    /// The tag does not match the content and the key.
    #[error("the tag of a route packet is wrong")]
    Tag,
    /// This version does not know the type.
    #[error("route packet of unknown kind {0}")]
    Kind(u8),
}

impl RoutePacket {
    /// Encodes the packet as a datagram, sealed with `key` and padded to `bytes`, at least
    /// [`MIN_BYTES`].
    #[must_use]
    pub fn seal(&self, key: &[u8; 32], bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes.max(MIN_BYTES)];
        let length = u16::try_from(out.len()).unwrap_or(u16::MAX);
        let (kind, echo, flags) = match self.kind {
            PacketType::Probe => (0, 0, 0),
            PacketType::Reply {
                echo,
                is_accepted,
                is_resealed,
            } => {
                let accepted = if is_accepted { ACCEPTED } else { 0 };
                let resealed = if is_resealed { RESEALED } else { 0 };
                (1, echo, accepted | resealed)
            }
        };
        let flags = match self.hears_nothing {
            true => flags | HEARS_NOTHING,
            false => flags,
        };
        out[..4].copy_from_slice(&[ROUTE_PACKET, kind, flags, self.channel]);
        out[4..12].copy_from_slice(&self.counter.to_be_bytes());
        out[12..20].copy_from_slice(&u64::to_be_bytes(echo));
        put_address(&mut out[20..38], self.from);
        put_address(&mut out[38..56], self.to);
        out[INDEX..INDEX + 2].copy_from_slice(&self.index.to_be_bytes());
        out[58..60].copy_from_slice(&length.to_be_bytes());
        let tag = tag(key, &out[..TAG]);
        out[TAG..TAG + TAG_BYTES].copy_from_slice(&tag);
        out
    }

    /// Verifies and decodes a datagram.
    ///
    /// # Errors
    /// One of [`PacketError`], the first that applies in the order of that enum.
    pub fn open(key: &[u8; 32], bytes: &[u8]) -> Result<Self, PacketError> {
        if bytes.first() != Some(&ROUTE_PACKET) {
            return Err(PacketError::Other);
        }
        let wrong_length = PacketError::Length { have: bytes.len() };
        let head = bytes
            .first_chunk::<{ TAG + TAG_BYTES }>()
            .filter(|_| bytes.len() >= MIN_BYTES)
            .ok_or(wrong_length)?;
        if usize::from(u16::from_be_bytes(field(head, 58))) != bytes.len() {
            return Err(wrong_length);
        }
        if !constant_time_eq_16(&tag(key, &head[..TAG]), &field(head, TAG)) {
            return Err(PacketError::Tag);
        }
        let kind = match head[1] {
            0 => PacketType::Probe,
            1 => PacketType::Reply {
                echo: u64::from_be_bytes(field(head, 12)),
                is_accepted: head[2] & ACCEPTED != 0,
                is_resealed: head[2] & RESEALED != 0,
            },
            other => return Err(PacketError::Kind(other)),
        };
        Ok(Self {
            kind,
            channel: head[3],
            index: u16::from_be_bytes(field(head, INDEX)),
            counter: u64::from_be_bytes(field(head, 4)),
            hears_nothing: head[2] & HEARS_NOTHING != 0,
            from: address(head, 20),
            to: address(head, 38),
        })
    }
}

/// The index that a datagram states ([`RoutePacket::index`]), to find the route whose key verifies
/// it. Anyone can state any index.
#[must_use]
pub fn stated_index(datagram: &[u8]) -> Option<u16> {
    let bytes = datagram.get(INDEX..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// Whether a relay on the path recomputes ICRCs, so that the sender must seal packets for its own addresses:
/// the trailer of a packet, which is sent as 0, has changed as that of a packet from one flow to the `other`
/// changes, for an identification that a program may use. Anyone on the path can change the trailer, so this
/// is a hint.
pub(crate) fn is_resealed(
    bytes: &[u8],
    stated: (SocketAddr, SocketAddr),
    other: (SocketAddr, SocketAddr),
) -> bool {
    let Some(trailer) = bytes.last_chunk::<TRAILER_BYTES>() else {
        return false;
    };
    if *trailer == [0; TRAILER_BYTES] {
        return false;
    }
    let (Ok(old), Ok(new)) = (Flow::new(stated.0, stated.1), Flow::new(other.0, other.1)) else {
        return false;
    };
    let moved = |id| icrc::reseal((&old, 0), (&new, id), bytes.len(), 0).to_le_bytes();
    (0..=HIGHEST_ID).any(|id| moved(id) == *trailer)
}

/// The tag covers the content and the length. It does not cover the padding, so a forged packet of
/// any size costs only one block of the hash.
fn tag(key: &[u8; 32], content: &[u8]) -> [u8; TAG_BYTES] {
    let hash = blake3::keyed_hash(key, content);
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&hash.as_bytes()[..TAG_BYTES]);
    tag
}

fn field<const N: usize>(head: &[u8; TAG + TAG_BYTES], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&head[at..at + N]);
    field
}

fn put_address(out: &mut [u8], address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    out[..16].copy_from_slice(&ip.octets());
    out[16..].copy_from_slice(&address.port().to_be_bytes());
}

fn address(head: &[u8; TAG + TAG_BYTES], at: usize) -> SocketAddr {
    let ip = Ipv6Addr::from(field::<16>(head, at)).to_canonical();
    SocketAddr::new(ip, u16::from_be_bytes(field(head, at + 16)))
}
