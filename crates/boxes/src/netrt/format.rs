//! Messages of NetRT boxes as bytes (P11.2).

use alloc::vec::Vec;

use crate::message::{Head, Stamp, u32_of};
use crate::packets::Space;
use crate::streams::StreamKey;

/// The public default key, used where no key is configured.
pub(crate) const NO_KEY: [u8; 32] = *b"farwrite netrt box without a key";

const TYPE_START: u8 = 5;
const TYPE_MARK: u8 = 6;
const TYPE_REQUEST: u8 = 7;
const TYPE_NOTICE: u8 = 8;

/// Number of packets after the expected one that a request covers.
pub(crate) const BITMAP_BITS: u32 = 128;
/// Highest number of packets that a request covers, with the expected one.
pub(crate) const MAX_SPAN: u32 = BITMAP_BITS + 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetRtMessage {
    pub(crate) space: Space,
    /// The destination queue pair of the flow's packets.
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) body: NetRtBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetRtBody {
    /// The next packet has this PSN, independent of earlier packets.
    Start(Stamp, Dscp),
    /// The next packet will have this PSN. Names the PSN of the last packet too.
    Mark(Stamp, Dscp, LastPsn),
    /// The destination expects this PSN, and requests missing packets.
    Request(Request),
    /// The source box has no copy of the packet with this PSN.
    Notice,
}

/// The code point of the flow's packets.
pub(crate) type Dscp = u8;
pub(crate) type LastPsn = u32;

/// Which packets are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Number of packets that the request covers, from the expected one on: 1 to [`MAX_SPAN`].
    pub(crate) span: u8,
    /// Bit i is set if the packet at distance i + 1 from the expected one has arrived.
    pub(crate) bitmap: u128,
}

impl Request {
    /// Whether the packet at this distance from the expected one is requested.
    pub(crate) fn wants(&self, distance: u32) -> bool {
        let came = |bit: u32| self.bitmap.checked_shr(bit).unwrap_or(0) & 1 == 1;
        distance < u32::from(self.span) && !distance.checked_sub(1).is_some_and(came)
    }
}

impl NetRtMessage {
    pub(crate) fn about(key: &StreamKey, psn: u32, body: NetRtBody) -> Self {
        Self {
            space: key.space,
            qpn: key.qpn,
            psn,
            body,
        }
    }

    /// Parses the bytes before the tag.
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
                    TYPE_MARK => NetRtBody::Mark(stamp, dscp, last),
                    _ if last == 0 => NetRtBody::Start(stamp, dscp),
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
                holds.then_some((NetRtBody::Request(request), rest))?
            }
            TYPE_NOTICE => (NetRtBody::Notice, rest),
            _ => return None,
        };
        rest.is_empty().then_some(Self {
            space: head.space,
            qpn: head.qpn,
            psn: head.psn,
            body,
        })
    }

    /// Encodes the bytes before the tag.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        let kind = match self.body {
            NetRtBody::Start(stamp, dscp) => {
                stamp.emit(&mut rest);
                rest.extend_from_slice(&[dscp, 0, 0, 0]);
                TYPE_START
            }
            NetRtBody::Mark(stamp, dscp, last) => {
                stamp.emit(&mut rest);
                rest.push(dscp);
                rest.extend_from_slice(&last.to_be_bytes()[1..]);
                TYPE_MARK
            }
            NetRtBody::Request(request) => {
                rest.extend_from_slice(&request.bitmap.to_be_bytes());
                rest.push(request.span);
                TYPE_REQUEST
            }
            NetRtBody::Notice => TYPE_NOTICE,
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

    fn message(body: NetRtBody) -> NetRtMessage {
        NetRtMessage {
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
            (NetRtBody::Start(stamp, 24), 32),
            (NetRtBody::Mark(stamp, 24, 77), 32),
            (NetRtBody::Request(request), 29),
            (NetRtBody::Notice, 12),
        ] {
            let message = message(body);
            let mut emitted = message.emit();
            assert_eq!(emitted.len(), bytes);
            assert_eq!(NetRtMessage::parse(&emitted), Some(message));
            for cut in 0..emitted.len() {
                assert_eq!(NetRtMessage::parse(&emitted[..cut]), None, "{body:?} {cut}");
            }
            emitted.push(0);
            assert_eq!(NetRtMessage::parse(&emitted), None);
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for span in [0, 130, 255] {
            let request = Request { span, bitmap: 0 };
            let message = message(NetRtBody::Request(request));
            assert_eq!(NetRtMessage::parse(&message.emit()), None, "{span}");
        }
        let singles = NetRtMessage {
            space: Space::Singles,
            ..message(NetRtBody::Notice)
        };
        assert_eq!(NetRtMessage::parse(&singles.emit()), None);
        let dscp = message(NetRtBody::Start(Stamp::default(), 64));
        assert_eq!(NetRtMessage::parse(&dscp.emit()), None);
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
