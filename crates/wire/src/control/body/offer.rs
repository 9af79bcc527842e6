//! Offers as bytes (P4.3).

use alloc::vec::Vec;

use super::Reader;
use crate::control::critical::CriticalChunks;
use crate::control::message::{Control, Offer, ReadRefusal, Withdrawal};
use crate::control::value_checks::ParseError;

const LENGTH_KNOWN: u8 = 1;
const HAS_IMMEDIATE: u8 = 2;
const WITHDRAWN: u8 = 4;
const EXPIRED: u8 = 8;
/// Bits in the flags of a withdrawn offer: why a read is refused.
const REFUSAL: u8 = 0x30;
const UNKNOWN_REGION: u8 = 0x10;
const OUT_OF_RANGE: u8 = 0x20;
const SCHEME: u8 = 0x30;
const ANSWERS_READ: u8 = 0x40;

pub(super) fn encode(offer: &Offer, out: &mut Vec<u8>) {
    let mut flags = 0;
    if offer.length.is_some() {
        flags |= LENGTH_KNOWN;
    }
    if offer.has_immediate {
        flags |= HAS_IMMEDIATE;
    }
    flags |= match offer.withdrawn {
        None => 0,
        Some(Withdrawal::GivenUp) => WITHDRAWN,
        Some(Withdrawal::Expired) => WITHDRAWN | EXPIRED,
        Some(Withdrawal::Refused(ReadRefusal::UnknownRegion)) => WITHDRAWN | UNKNOWN_REGION,
        Some(Withdrawal::Refused(ReadRefusal::OutOfRange)) => WITHDRAWN | OUT_OF_RANGE,
        Some(Withdrawal::Refused(ReadRefusal::Scheme)) => WITHDRAWN | SCHEME,
    };
    if offer.answers_read {
        flags |= ANSWERS_READ;
    }
    out.extend(offer.message.to_be_bytes());
    out.extend(offer.length.unwrap_or(0).to_be_bytes());
    out.extend(offer.cleared.to_be_bytes());
    out.push(flags);
    out.push(offer.scheme.id);
    out.extend(offer.scheme.params);
    for range in offer.critical.ranges() {
        out.extend(range.start.to_be_bytes());
        out.extend(range.end.to_be_bytes());
    }
}

/// Why an offer with these flags was withdrawn, if it was.
fn withdrawal(flags: u8) -> Option<Withdrawal> {
    if flags & WITHDRAWN == 0 {
        return None;
    }
    Some(match flags & REFUSAL {
        UNKNOWN_REGION => Withdrawal::Refused(ReadRefusal::UnknownRegion),
        OUT_OF_RANGE => Withdrawal::Refused(ReadRefusal::OutOfRange),
        SCHEME => Withdrawal::Refused(ReadRefusal::Scheme),
        _ if flags & EXPIRED != 0 => Withdrawal::Expired,
        _ => Withdrawal::GivenUp,
    })
}

impl Reader<'_> {
    pub(super) fn offer(&mut self) -> Option<Result<Control, ParseError>> {
        let message = self.u64()?;
        let length = self.u64()?;
        let cleared = self.u64()?;
        let flags = self.u8()?;
        let scheme = self.scheme()?;
        let ranges = self.rest(|reader| Some(reader.u32()?..reader.u32()?))?;
        let count = ranges.len();
        let Some(critical) = CriticalChunks::new(ranges) else {
            return Some(Err(ParseError::Critical { message, count }));
        };
        Some(Ok(Control::Offer(Offer {
            message,
            length: (flags & LENGTH_KNOWN != 0).then_some(length),
            has_immediate: flags & HAS_IMMEDIATE != 0,
            scheme,
            critical,
            cleared,
            withdrawn: withdrawal(flags),
            answers_read: flags & ANSWERS_READ != 0,
        })))
    }
}
