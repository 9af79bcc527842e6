//! Probe datagrams (P9.2): a sealed header and padding.
//!
//! The tag covers the header and the length of the datagram, not the padding: the UDP checksum
//! guards that, and hashing it would take the time that the measurement needs.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use constant_time_eq::constant_time_eq_16;

/// Bytes of the key of a probe session.
pub const KEY_BYTES: usize = 32;
/// Fewest bytes of a datagram. An answer has as many, so no answer is longer than its question.
pub const MIN_BYTES: usize = 72;
/// Most bytes of a datagram: the payload of the largest IPv4 datagram.
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
/// What the tag covers beside the length.
const COVERED: [Range<usize>; 2] = [0..TAG.start, TAG.end..MIN_BYTES];

/// A datagram of a probe session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// What it is.
    pub kind: Kind,
    /// Which socket of the prober it belongs to.
    pub flow: u8,
    /// Number of the trial that it belongs to.
    pub trial: u32,
    /// Its place in the trial, from 0.
    pub sequence: u32,
    /// When the question left, in nanoseconds of the prober's clock; only the prober reads it.
    pub timestamp_ns: u64,
}

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the prober: to be counted.
    Data,
    /// From the prober: to be counted and answered.
    Question,
    /// From the responder.
    Answer(Answer),
}

/// What the responder says of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Bytes of the question, as UDP payload.
    pub question_bytes: u32,
    /// The two ECN bits that the question arrived with.
    pub ecn_bits: u8,
    /// Time between the question's arrival and this answer's departure.
    pub hold_ns: u64,
    /// Where the question came from, as the responder sees it.
    pub seen: SocketAddr,
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no whole header.
    #[error("{have_bytes} bytes came, a probe datagram has at least {MIN_BYTES}")]
    TooShort {
        /// Bytes that came.
        have_bytes: usize,
    },
    /// The tag is not that of these bytes under this key.
    #[error("the tag of a probe datagram is wrong")]
    Tag,
    /// A kind that P9.2 does not have.
    #[error("kind {0:#04x} of a probe datagram came, want 0xf0, 0xf1 or 0xf2")]
    Kind(u8),
}

impl Kind {
    /// The first byte. Version 2 of the protocol has no RoCE packet that begins with one of these.
    fn code(self) -> u8 {
        match self {
            Self::Data => 0xf0,
            Self::Question => 0xf1,
            Self::Answer(_) => 0xf2,
        }
    }
}

impl Datagram {
    /// The first bytes of a datagram of `datagram_bytes` (UDP payload), sealed. What follows them is
    /// padding, of any content.
    #[must_use]
    pub fn seal(&self, key: &[u8; KEY_BYTES], datagram_bytes: usize) -> [u8; MIN_BYTES] {
        let mut bytes = [0; MIN_BYTES];
        bytes[KIND] = self.kind.code();
        bytes[FLOW] = self.flow;
        bytes[TRIAL].copy_from_slice(&self.trial.to_be_bytes());
        bytes[SEQUENCE].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[TIMESTAMP].copy_from_slice(&self.timestamp_ns.to_be_bytes());
        if let Kind::Answer(answer) = self.kind {
            bytes[ECN] = answer.ecn_bits & 3;
            bytes[BYTES].copy_from_slice(&answer.question_bytes.to_be_bytes());
            bytes[HOLD].copy_from_slice(&answer.hold_ns.to_be_bytes());
            let ip = match answer.seen.ip() {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            bytes[SEEN_IP].copy_from_slice(&ip.octets());
            bytes[SEEN_PORT].copy_from_slice(&answer.seen.port().to_be_bytes());
        }
        let tag = tag(key, &bytes, datagram_bytes);
        bytes[TAG].copy_from_slice(&tag);
        bytes
    }

    /// Checks a datagram and reads its header.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(key: &[u8; KEY_BYTES], bytes: &[u8]) -> Result<Self, OpenError> {
        let have_bytes = bytes.len();
        let header = bytes
            .first_chunk::<MIN_BYTES>()
            .ok_or(OpenError::TooShort { have_bytes })?;
        if !constant_time_eq_16(&tag(key, header, have_bytes), &field(header, TAG)) {
            return Err(OpenError::Tag);
        }
        let number = |range| u32::from_be_bytes(field(header, range));
        let kind = match header[KIND] {
            0xf0 => Kind::Data,
            0xf1 => Kind::Question,
            0xf2 => {
                let ip = Ipv6Addr::from(field(header, SEEN_IP)).to_canonical();
                let port = u16::from_be_bytes(field(header, SEEN_PORT));
                Kind::Answer(Answer {
                    question_bytes: number(BYTES),
                    ecn_bits: header[ECN] & 3,
                    hold_ns: u64::from_be_bytes(field(header, HOLD)),
                    seen: SocketAddr::new(ip, port),
                })
            }
            code => return Err(OpenError::Kind(code)),
        };
        Ok(Self {
            kind,
            flow: header[FLOW],
            trial: number(TRIAL),
            sequence: number(SEQUENCE),
            timestamp_ns: u64::from_be_bytes(field(header, TIMESTAMP)),
        })
    }
}

/// Puts the right tag into bytes that are long enough for one. For tests of what lies behind the tag.
#[doc(hidden)]
pub fn retag(key: &[u8; KEY_BYTES], bytes: &mut [u8]) {
    let datagram_bytes = bytes.len();
    if let Some(header) = bytes.first_chunk_mut() {
        let tag = tag(key, header, datagram_bytes);
        header[TAG].copy_from_slice(&tag);
    }
}

/// The tag of a datagram of this header and length.
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
