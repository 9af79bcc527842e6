//! Probe datagrams (P9.2): a sealed header and padding.
//!
//! The tag covers the header and the length of the datagram, but not the padding. The UDP checksum
//! protects the padding; hashing it would take the time that the measurement needs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use constant_time_eq::constant_time_eq_16;

/// Length of the key of a probe session in bytes.
pub const KEY_BYTES: usize = 32;
/// Smallest length of a datagram in bytes. An answer has this length, so no answer is longer than
/// its question.
pub const MIN_BYTES: usize = 72;
/// Largest length of a datagram: the payload of the largest IPv4 datagram.
pub const MAX_BYTES: usize = 65_507;

const KIND: usize = 0;
const FLOW: usize = 1;
const ECN: usize = 2;
const TRIAL: Range<usize> = 4..8;
const SEQUENCE: Range<usize> = 8..12;
const BYTES: Range<usize> = 12..16;
const TIMESTAMP: Range<usize> = 16..24;
const TAG: Range<usize> = 24..40;
const HOLD: Range<usize> = 40..48;
const SEEN_IP: Range<usize> = 48..64;
const SEEN_PORT: Range<usize> = 64..66;
/// The ranges that the tag covers, besides the length.
const COVERED: [Range<usize>; 2] = [0..TAG.start, TAG.end..MIN_BYTES];

/// A datagram of a probe session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The kind of the datagram.
    pub kind: DatagramKind,
    /// Index of the prober's socket to which it belongs.
    pub flow: u8,
    /// Number of the trial to which it belongs.
    pub trial: u32,
    /// Index of the packet in the trial, from 0.
    pub sequence: u32,
    /// Send time of the question, in nanoseconds of the prober's clock. Only the prober uses it.
    pub timestamp_ns: u64,
}

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramKind {
    /// From the prober: the responder counts it.
    Data,
    /// From the prober: the responder counts and answers it.
    Question,
    /// From the responder: the answer to a question.
    Answer(Answer),
}

/// The responder's report about a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Length of the question, in bytes of UDP payload.
    pub question_bytes: u32,
    /// The two ECN bits that the question arrived with.
    pub ecn_bits: u8,
    /// Time from the arrival of the question to the departure of this answer.
    pub hold_ns: u64,
    /// Source address of the question, as the responder sees it.
    pub seen: SocketAddr,
}

impl DatagramKind {
    /// The first byte. No RoCE packet of version 2 of the protocol begins with one of these values.
    fn code(self) -> u8 {
        match self {
            Self::Data => 0xf0,
            Self::Question => 0xf1,
            Self::Answer(_) => 0xf2,
        }
    }
}

impl Datagram {
    /// Seals the header of a datagram of `datagram_bytes` (UDP payload) and returns it. The rest of
    /// the datagram is padding with any content.
    #[must_use]
    pub fn seal(&self, key: &[u8; KEY_BYTES], datagram_bytes: usize) -> [u8; MIN_BYTES] {
        let mut bytes = [0; MIN_BYTES];
        bytes[KIND] = self.kind.code();
        bytes[FLOW] = self.flow;
        bytes[TRIAL].copy_from_slice(&self.trial.to_be_bytes());
        bytes[SEQUENCE].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[TIMESTAMP].copy_from_slice(&self.timestamp_ns.to_be_bytes());
        if let DatagramKind::Answer(answer) = self.kind {
            bytes[ECN] = answer.ecn_bits & 3;
            bytes[BYTES].copy_from_slice(&answer.question_bytes.to_be_bytes());
            bytes[HOLD].copy_from_slice(&answer.hold_ns.to_be_bytes());
            bytes[SEEN_IP].copy_from_slice(&octets(answer.seen.ip()));
            bytes[SEEN_PORT].copy_from_slice(&answer.seen.port().to_be_bytes());
        }
        let tag = tag(key, &bytes, datagram_bytes);
        bytes[TAG].copy_from_slice(&tag);
        bytes
    }

    /// Checks a datagram and parses its header. Returns `None` if it is too short, if its tag is that of other bytes or
    /// of another key, and if P9.2 does not define its kind.
    #[must_use]
    pub fn open(key: &[u8; KEY_BYTES], bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<MIN_BYTES>()?;
        if !constant_time_eq_16(&tag(key, header, bytes.len()), &field(header, TAG)) {
            return None;
        }
        let number = |range| u32::from_be_bytes(field(header, range));
        let kind = match header[KIND] {
            0xf0 => DatagramKind::Data,
            0xf1 => DatagramKind::Question,
            0xf2 => {
                let ip = Ipv6Addr::from(field(header, SEEN_IP)).to_canonical();
                let port = u16::from_be_bytes(field(header, SEEN_PORT));
                DatagramKind::Answer(Answer {
                    question_bytes: number(BYTES),
                    ecn_bits: header[ECN] & 3,
                    hold_ns: u64::from_be_bytes(field(header, HOLD)),
                    seen: SocketAddr::new(ip, port),
                })
            }
            _ => return None,
        };
        Some(Self {
            kind,
            flow: header[FLOW],
            trial: number(TRIAL),
            sequence: number(SEQUENCE),
            timestamp_ns: u64::from_be_bytes(field(header, TIMESTAMP)),
        })
    }
}

/// The wire format of an address.
pub(crate) fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Writes a valid tag into a datagram of at least [`MIN_BYTES`]. For tests of the checks after the
/// tag.
#[doc(hidden)]
pub fn retag(key: &[u8; KEY_BYTES], bytes: &mut [u8]) {
    let datagram_bytes = bytes.len();
    if let Some(header) = bytes.first_chunk_mut() {
        let tag = tag(key, header, datagram_bytes);
        header[TAG].copy_from_slice(&tag);
    }
}

/// The tag of a datagram with this header and length.
fn tag(key: &[u8; KEY_BYTES], header: &[u8; MIN_BYTES], datagram_bytes: usize) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for covered in COVERED {
        hasher.update(&header[covered]);
    }
    hasher.update(&(datagram_bytes as u64).to_be_bytes());
    let hash = hasher.finalize();
    std::array::from_fn(|i| hash.as_bytes()[i])
}

fn field<const N: usize>(header: &[u8; MIN_BYTES], range: Range<usize>) -> [u8; N] {
    std::array::from_fn(|i| header[range.start + i])
}
