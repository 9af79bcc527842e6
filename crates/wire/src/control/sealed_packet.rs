//! A control packet: header, tag, messages (P4.1, P4.2).

use super::body;
use super::message::Control;
use super::value_checks::{self, ParseError};
use crate::header::field;
use alloc::vec;
use alloc::vec::Vec;
use constant_time_eq::constant_time_eq_16;
use core::ops::Range;

/// Bytes of the key that one direction's tags are made with.
pub const KEY_BYTES: usize = 32;
/// Bytes before the first message.
pub const HEADER_BYTES: usize = TAG.end;
/// Bytes of a message in addition to its body.
pub const MESSAGE_OVERHEAD_BYTES: usize = 4;

const PROTOCOL_VERSION: u8 = 1;
const VERSION: usize = 0;
const FLAGS: usize = 1;
const COUNTER: Range<usize> = 4..12;
const TIMESTAMP: Range<usize> = 12..20;
const ECHO: Range<usize> = 20..28;
const HOLD: Range<usize> = 28..36;
const TAG: Range<usize> = 36..52;
const TAG_BYTES: usize = TAG.end - TAG.start;

const FLAG_ECHO: u8 = 1;

/// The fields of every control packet, with any messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Replay counter: each packet of a direction has a higher value than the previous one.
    pub counter: u64,
    /// When the packet left, in nanoseconds of the sender's clock. Only its sender interprets it.
    pub timestamp_ns: u64,
    /// The peer's latest timestamp, returned to the peer once there is one.
    pub echo: Option<Echo>,
}

/// A timestamp that is returned to its sender. The sender computes the round-trip time: the time of
/// arrival minus the timestamp and the hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The timestamp, unchanged.
    pub timestamp_ns: u64,
    /// Time between its arrival and this packet's departure.
    pub hold_ns: u64,
}

/// Why a control packet was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The packet is too short for a header.
    #[error("{have_bytes} bytes came, a control packet has at least {HEADER_BYTES}")]
    TooShort {
        /// Bytes that were received.
        have_bytes: usize,
    },
    /// Another version of the protocol.
    #[error("version {0} of the control protocol came, {PROTOCOL_VERSION} was wanted")]
    Version(u8),
    /// The tag does not match these bytes and this key.
    #[error("the tag of a control packet is wrong")]
    Tag,
}

/// A control packet whose messages are complete. It is sealed when it leaves.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Room for the header, then the messages.
    bytes: Vec<u8>,
}

/// Collects the messages of one control packet.
///
/// ```
/// use farwrite_wire::control::{Builder, Control, Header, Nack, open};
///
/// let (key, header) = ([7; 32], Header { counter: 1, timestamp_ns: 5, echo: None });
/// let nack = Control::Nack(Nack { message: 3, lost: vec![8..10] });
/// let mut builder = Builder::new(1024);
/// assert!(builder.push(&nack), "it fits");
/// let packet = builder.seal(&header, &key);
///
/// let (came, mut messages) = open(&key, &packet)?;
/// assert_eq!(came.counter, 1);
/// assert_eq!(messages.next(), Some(Ok(nack)));
/// assert!(open(&[8; 32], &packet).is_err(), "another key");
/// # Ok::<(), farwrite_wire::control::OpenError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    /// Room for the header, then the messages.
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl Builder {
    /// A builder of packets of at most `max_bytes`, which is at least [`HEADER_BYTES`].
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            bytes: vec![0; HEADER_BYTES],
            max_bytes,
        }
    }

    /// Adds a message. Returns false and adds nothing if it does not fit.
    #[must_use]
    pub fn push(&mut self, control: &Control) -> bool {
        debug_assert_eq!(
            value_checks::check(control),
            Ok(()),
            "the peer would refuse it"
        );
        let start = self.bytes.len();
        self.bytes.extend([body::kind(control), 0, 0, 0]);
        body::encode(control, &mut self.bytes);
        let body_bytes = u16::try_from(self.bytes.len() - start - MESSAGE_OVERHEAD_BYTES);
        match body_bytes {
            Ok(body_bytes) if self.bytes.len() <= self.max_bytes => {
                self.bytes[start + 2..][..2].copy_from_slice(&body_bytes.to_be_bytes());
                true
            }
            _ => {
                self.bytes.truncate(start);
                false
            }
        }
    }

    /// Bytes left for messages, including their overhead.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.max_bytes.saturating_sub(self.bytes.len())
    }

    /// Returns whether there is no message yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }

    /// Ends the packet and starts the next. Without messages it is a ping.
    #[must_use]
    pub fn finish(&mut self) -> Draft {
        let bytes = core::mem::replace(&mut self.bytes, vec![0; HEADER_BYTES]);
        Draft { bytes }
    }

    /// Ends the packet, seals it at once, and starts the next.
    #[must_use]
    pub fn seal(&mut self, header: &Header, key: &[u8; KEY_BYTES]) -> Vec<u8> {
        let mut draft = self.finish();
        draft.seal(header, key);
        draft.bytes
    }
}

impl Draft {
    /// Returns the packet, which is the payload of a UC SEND Only. `key` is the key of this
    /// direction. A draft can be sealed again with another header.
    pub fn seal(&mut self, header: &Header, key: &[u8; KEY_BYTES]) -> &[u8] {
        let Self { bytes } = self;
        let echo = header.echo;
        let (timestamp_ns, hold_ns) = echo.map_or((0, 0), |echo| (echo.timestamp_ns, echo.hold_ns));
        bytes[VERSION] = PROTOCOL_VERSION;
        bytes[FLAGS] = if echo.is_some() { FLAG_ECHO } else { 0 };
        bytes[COUNTER].copy_from_slice(&header.counter.to_be_bytes());
        bytes[TIMESTAMP].copy_from_slice(&header.timestamp_ns.to_be_bytes());
        bytes[ECHO].copy_from_slice(&timestamp_ns.to_be_bytes());
        bytes[HOLD].copy_from_slice(&hold_ns.to_be_bytes());
        let tag = tag(key, bytes);
        bytes[TAG].copy_from_slice(&tag);
        bytes
    }
}

/// Checks a control packet and reads its header. `key` is the key of the direction of the packet. A
/// [`super::ReplayWindow`] decides whether its counter is new.
///
/// # Errors
/// [`OpenError`].
pub fn open<'a>(
    key: &[u8; KEY_BYTES],
    bytes: &'a [u8],
) -> Result<(Header, Messages<'a>), OpenError> {
    let have_bytes = bytes.len();
    let (header, messages) = bytes
        .split_first_chunk::<HEADER_BYTES>()
        .ok_or(OpenError::TooShort { have_bytes })?;
    if header[VERSION] != PROTOCOL_VERSION {
        return Err(OpenError::Version(header[VERSION]));
    }
    if !constant_time_eq_16(&tag(key, bytes), &field(header, TAG)) {
        return Err(OpenError::Tag);
    }
    let number = |range| u64::from_be_bytes(field(header, range));
    let header = Header {
        counter: number(COUNTER),
        timestamp_ns: number(TIMESTAMP),
        echo: (header[FLAGS] & FLAG_ECHO != 0).then(|| Echo {
            timestamp_ns: number(ECHO),
            hold_ns: number(HOLD),
        }),
    };
    Ok((header, Messages(messages)))
}

/// The messages of a packet, one by one. Messages of unknown types are skipped. After a refused
/// message the following messages can still be read, unless the packet ends within the refused one.
#[derive(Clone, Debug)]
pub struct Messages<'a>(&'a [u8]);

impl<'a> Messages<'a> {
    /// Splits off the next message: its type and its body.
    fn split(&mut self) -> Result<(u8, &'a [u8]), ParseError> {
        let have_bytes = self.0.len();
        let truncated = |need_bytes| ParseError::Truncated {
            need_bytes,
            have_bytes,
        };
        let unread = core::mem::take(&mut self.0);
        let (&[kind, _, high, low], rest) = unread
            .split_first_chunk::<MESSAGE_OVERHEAD_BYTES>()
            .ok_or(truncated(MESSAGE_OVERHEAD_BYTES))?;
        let body_bytes = usize::from(u16::from_be_bytes([high, low]));
        let (body, rest) = rest
            .split_at_checked(body_bytes)
            .ok_or(truncated(MESSAGE_OVERHEAD_BYTES + body_bytes))?;
        self.0 = rest;
        Ok((kind, body))
    }
}

impl Iterator for Messages<'_> {
    type Item = Result<Control, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.split() {
                Ok((kind, body)) => {
                    if let Some(message) = body::decode(kind, body) {
                        return Some(message);
                    }
                }
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

/// Computes the tag of a packet, with its tag field as zeros.
fn tag(key: &[u8; KEY_BYTES], packet: &[u8]) -> [u8; TAG_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&packet[..TAG.start]);
    hasher.update(&[0; TAG_BYTES]);
    hasher.update(&packet[TAG.end..]);
    field(hasher.finalize().as_bytes(), 0..TAG_BYTES)
}
