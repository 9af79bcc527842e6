//! The parts that the messages of all boxes share (P10.3): the header, stamps, and the
//! authentication tag.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use constant_time_eq::constant_time_eq_n;
use farwrite_wire::Secret;
use farwrite_wire::header::ICRC_BYTES;
use farwrite_wire::icrc::Icrc;
use farwrite_wire::opcode::BOX_MESSAGE;

use crate::frame::{Envelope, View};
use crate::packets::Space;

pub(crate) const TAG_BYTES: usize = 16;
const SPACE: u8 = 0x03;

/// The header of all box messages. It is as long as a BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The destination queue pair of the stream's packets.
    pub(crate) qpn: u32,
    pub(crate) kind: u8,
    /// Bits 7 to 2 of byte 8; bits 1 and 0 are 0.
    pub(crate) flags: u8,
    pub(crate) space: Space,
    pub(crate) psn: u32,
}

impl Head {
    pub(crate) const BYTES: usize = 12;

    /// Returns the header and the rest.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        if head[0] != BOX_MESSAGE || head[5..8] != [0; 3] {
            return None;
        }
        let space = match head[8] & SPACE {
            0 => Space::Request,
            1 => Space::Response,
            2 => Space::Singles,
            _ => return None,
        };
        let head = Self {
            qpn: u32_of(&head[1..4]),
            kind: head[4],
            flags: head[8] & !SPACE,
            space,
            psn: u32_of(&head[9..12]),
        };
        Some((head, rest))
    }

    pub(crate) fn emit(&self) -> [u8; Self::BYTES] {
        let mut head = [0; Self::BYTES];
        head[0] = BOX_MESSAGE;
        head[1..4].copy_from_slice(&self.qpn.to_be_bytes()[1..]);
        head[4] = self.kind;
        head[8] = self.flags
            | match self.space {
                Space::Request => 0,
                Space::Response => 1,
                Space::Singles => 2,
            };
        head[9..12].copy_from_slice(&self.psn.to_be_bytes()[1..]);
        head
    }
}

/// Orders the messages of a box: later messages have a higher stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Higher at each start of the box.
    pub(crate) boot: u64,
    /// Counts the messages since the start.
    pub(crate) serial: u64,
}

impl Stamp {
    pub(crate) const BYTES: usize = 16;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (boot, serial) = bytes.split_first_chunk()?;
        Some(Self {
            boot: u64::from_be_bytes(*boot),
            serial: u64::from_be_bytes(*serial.first_chunk()?),
        })
    }

    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.boot.to_be_bytes());
        out.extend_from_slice(&self.serial.to_be_bytes());
    }
}

/// The latest stamp taken from another box.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LatestStamp {
    stamp: Stamp,
    taken_ns: u64,
}

impl LatestStamp {
    pub(crate) fn new(now_ns: u64, stamp: Stamp) -> Self {
        let taken_ns = now_ns;
        Self { stamp, taken_ns }
    }

    pub(crate) fn get(self) -> Stamp {
        self.stamp
    }

    /// Takes a stamp if it is higher. Returns whether it was taken. A lower `boot` is taken too if no
    /// stamp was taken for `quiet_ns`: the clock of the other box may have been set back before it
    /// restarted.
    pub(crate) fn take(&mut self, now_ns: u64, stamp: Stamp, quiet_ns: u64) -> bool {
        let quiet = now_ns.saturating_sub(self.taken_ns) >= quiet_ns;
        let restarted = quiet && stamp.boot < self.stamp.boot;
        let takes = stamp > self.stamp || restarted;
        if takes {
            *self = Self::new(now_ns, stamp);
        }
        takes
    }
}

/// Authenticates box messages: adds and checks a tag under the shared key.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    key: Secret,
}

impl Seal {
    pub(crate) fn new(key: Secret) -> Self {
        Self { key }
    }

    /// Seals a message. Returns its frame, with the headers of `envelope`.
    pub(crate) fn wrap(&self, envelope: &Envelope, mut message: Vec<u8>) -> Option<Vec<u8>> {
        let bare = envelope.wrap(0, &message);
        let ends = View::parse(&bare)?;
        message.extend_from_slice(&self.tag(ends.src, ends.dst, &message));
        let icrc = Icrc::new(&ends.flow()?, 0, message.len() + ICRC_BYTES);
        let icrc = icrc.update(&message).finish();
        message.extend_from_slice(&icrc.to_le_bytes());
        Some(envelope.wrap(0, &message))
    }

    /// Returns the message without its tag, if a box with the same key sealed it.
    pub(crate) fn open<'a>(&self, view: &View<'a>) -> Option<&'a [u8]> {
        let (sealed, _icrc) = view.payload().split_last_chunk::<ICRC_BYTES>()?;
        let (message, tag) = sealed.split_last_chunk::<TAG_BYTES>()?;
        let is_message = message.first() == Some(&BOX_MESSAGE);
        let holds = is_message && constant_time_eq_n(tag, &self.tag(view.src, view.dst, message));
        holds.then_some(message)
    }

    fn tag(&self, src: SocketAddr, dst: SocketAddr, bytes: &[u8]) -> [u8; TAG_BYTES] {
        let mut hash = blake3::Hasher::new_keyed(&self.key);
        for address in [src.ip(), dst.ip()] {
            match address {
                IpAddr::V4(address) => hash.update(&address.to_ipv6_mapped().octets()),
                IpAddr::V6(address) => hash.update(&address.octets()),
            };
        }
        hash.update(bytes);
        let mut tag = [0; TAG_BYTES];
        hash.finalize_xof().fill(&mut tag);
        tag
    }
}

/// Reads a big-endian number of up to four bytes.
pub(crate) fn u32_of(bytes: &[u8]) -> u32 {
    let add = |sum, byte: &u8| sum << 8 | u32::from(*byte);
    bytes.iter().fold(0, add)
}
