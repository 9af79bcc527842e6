//! Messages of NetRT boxes as bytes (P11.2).

use alloc::vec::Vec;

use crate::KEY_BYTES;
use crate::message::{Head, Stamp, u32_of};
use crate::packets::Space;
use crate::streams::Key;

/// What stands for the key where none is configured. Everybody knows it.
pub(crate) const NO_KEY: [u8; KEY_BYTES] = *b"farwrite netrt box without a key";

const TYPE_START: u8 = 5;
const TYPE_MARK: u8 = 6;
const TYPE_REQUEST: u8 = 7;
const TYPE_NOTICE: u8 = 8;

/// Packets after the expected one of which a request says whether they have come.
pub(crate) const BITMAP_BITS: u32 = 128;
/// Most packets that a request is about.
pub(crate) const MAX_SPAN: u32 = BITMAP_BITS + 1;

/// A message from one box to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) space: Space,
    /// The queue pair to which the packets of the flow go.
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// The next packet has this PSN, whatever came before.
    Start(Stamp, Dscp),
    /// The next packet will have this PSN; the last one had another.
    Mark(Stamp, Dscp, LastPsn),
    /// This PSN is expected.
    Request(Request),
    /// There is no copy of the packet with this PSN.
    Notice,
}

/// The code point of the flow's packets.
pub(crate) type Dscp = u8;
/// The PSN of the packet that was sent last.
pub(crate) type LastPsn = u32;

/// Which packets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Packets that the request is about, from the expected one on: 1 to [`MAX_SPAN`].
    pub(crate) span: u8,
    /// Bit i: the packet i + 1 after the expected one has come.
    pub(crate) bitmap: u128,
}

impl Request {
    /// Whether the packet at a distance from the expected one is wanted.
    pub(crate) fn wants(&self, distance: u32) -> bool {
        let came = |bit: u32| self.bitmap.checked_shr(bit).unwrap_or(0) & 1 == 1;
        distance < u32::from(self.span) && !distance.checked_sub(1).is_some_and(came)
    }
}

impl Message {
    pub(crate) fn about(key: &Key, psn: u32, body: Body) -> Self {
        Self {
            space: key.space,
            qpn: key.qpn,
            psn,
            body,
        }
    }

    /// Reads the bytes before the tag.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = Head::parse(bytes)?;
        if head.flags != 0 || head.space == Space::Singles {
            return None;
        }
        let (body, rest) = match head.kind {
            TYPE_START | TYPE_MARK => {
                let (stamp, rest) = rest.split_first_chunk()?;
                let (fields, rest) = rest.split_first_chunk::<4>()?;
                let (stamp, dscp) = (Stamp::parse(stamp)?, fields[0]);
                let last = u32_of(&fields[1..]);
                let body = match head.kind {
                    TYPE_MARK => Body::Mark(stamp, dscp, last),
                    _ if last == 0 => Body::Start(stamp, dscp),
                    _ => return None,
                };
                (dscp < 64).then_some((body, rest))?
            }
            TYPE_REQUEST => {
                let (bitmap, rest) = rest.split_first_chunk()?;
                let (&span, rest) = rest.split_first()?;
                let request = Request {
                    span,
                    bitmap: u128::from_be_bytes(*bitmap),
                };
                let holds = (1..=MAX_SPAN).contains(&u32::from(span));
                holds.then_some((Body::Request(request), rest))?
            }
            TYPE_NOTICE => (Body::Notice, rest),
            _ => return None,
        };
        rest.is_empty().then_some(Self {
            space: head.space,
            qpn: head.qpn,
            psn: head.psn,
            body,
        })
    }

    /// The bytes before the tag.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        let kind = match self.body {
            Body::Start(stamp, dscp) => {
                stamp.emit(&mut rest);
                rest.extend_from_slice(&[dscp, 0, 0, 0]);
                TYPE_START
            }
            Body::Mark(stamp, dscp, last) => {
                stamp.emit(&mut rest);
                rest.push(dscp);
                rest.extend_from_slice(&last.to_be_bytes()[1..]);
                TYPE_MARK
            }
            Body::Request(request) => {
                rest.extend_from_slice(&request.bitmap.to_be_bytes());
                rest.push(request.span);
                TYPE_REQUEST
            }
            Body::Notice => TYPE_NOTICE,
        };
        let head = Head {
            qpn: self.qpn,
            kind,
            flags: 0,
            space: self.space,
            psn: self.psn,
        };
        [&head.emit()[..], &rest].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: Body) -> Message {
        Message {
            space: Space::Response,
            qpn: 0x12_3456,
            psn: 0xFF_FFFF,
            body,
        }
    }

    #[test]
    fn messages_are_read_back_and_cut_or_longer_ones_are_not() {
        let stamp = Stamp { boot: 3, serial: 4 };
        let request = Request {
            span: 129,
            bitmap: 1 << 127 | 5,
        };
        for (body, bytes) in [
            (Body::Start(stamp, 24), 32),
            (Body::Mark(stamp, 24, 77), 32),
            (Body::Request(request), 29),
            (Body::Notice, 12),
        ] {
            let message = message(body);
            let mut emitted = message.emit();
            assert_eq!(emitted.len(), bytes);
            assert_eq!(Message::parse(&emitted), Some(message));
            for cut in 0..emitted.len() {
                assert_eq!(Message::parse(&emitted[..cut]), None, "{body:?} {cut}");
            }
            emitted.push(0);
            assert_eq!(Message::parse(&emitted), None);
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for span in [0, 130, 255] {
            let request = Request { span, bitmap: 0 };
            let message = message(Body::Request(request));
            assert_eq!(Message::parse(&message.emit()), None, "{span}");
        }
        let singles = Message {
            space: Space::Singles,
            ..message(Body::Notice)
        };
        assert_eq!(Message::parse(&singles.emit()), None);
        let dscp = message(Body::Start(Stamp::default(), 64));
        assert_eq!(Message::parse(&dscp.emit()), None);
    }

    #[test]
    fn a_request_wants_what_has_no_bit() {
        let request = Request {
            span: 5,
            bitmap: 0b0101,
        };
        let wanted = (0..200).filter(|&distance| request.wants(distance));
        assert_eq!(wanted.collect::<Vec<_>>(), [0, 2, 4]);
    }
}
