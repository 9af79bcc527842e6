//! The bodies of control messages as bytes (P4.3 to P4.8, P4.10 to P4.12).

use super::check::{ParseError, check};
use super::critical::CriticalChunks;
use super::message::{
    Ack, ClearToSend, Clearance, Control, Credit, CreditRequest, LossCounts, MessageId, Nack,
    Offer, Outcome, PathFeedback, Place, ReadRefusal, ReadRequest, SchemeTag, Terms, Withdrawal,
};
use super::packet::MESSAGE_OVERHEAD_BYTES;
use alloc::vec::Vec;

const OFFER: u8 = 1;
const CLEAR_TO_SEND: u8 = 2;
const ACK: u8 = 3;
const NACK: u8 = 4;
const RECEIVE_COMPLETE: u8 = 5;
const LOSS: u8 = 6;
const PATH_FEEDBACK: u8 = 7;
const READ: u8 = 8;
const CREDIT_REQUEST: u8 = 9;
const CREDIT: u8 = 10;

const OFFER_LENGTH_KNOWN: u8 = 1;
const OFFER_HAS_IMMEDIATE: u8 = 2;
const OFFER_WITHDRAWN: u8 = 4;
const OFFER_EXPIRED: u8 = 8;
/// Bits in the flags of a withdrawn offer: why a read is refused.
const OFFER_REFUSAL: u8 = 0x30;
const OFFER_UNKNOWN_REGION: u8 = 0x10;
const OFFER_OUT_OF_RANGE: u8 = 0x20;
const OFFER_SCHEME: u8 = 0x30;
const OFFER_ANSWERS_READ: u8 = 0x40;

/// A bit in the generation byte of a clearance: memory for parity follows.
const CLEARANCE_HAS_PARITY: u8 = 0x80;
/// A bit in the generation byte of a clearance: terms follow.
const CLEARANCE_HAS_TERMS: u8 = 0x40;

const TERMS_EXACT_LENGTH: u8 = 1;
const TERMS_IMMEDIATE: u8 = 2;
const TERMS_SCHEME: u8 = 4;
const TERMS_ACCEPT_PARTIAL: u8 = 8;
const TERMS_ANSWERS_READ: u8 = 0x10;

const WHOLE: u8 = 0;
const PARTIAL: u8 = 1;
const FAILED: u8 = 2;

/// Bytes that a clear-to-send takes in a packet before its first clearance (P4.4).
pub const CLEAR_TO_SEND_OVERHEAD_BYTES: usize = MESSAGE_OVERHEAD_BYTES + 24;
/// Bytes of one clearance (P4.4).
pub const CLEARANCE_BYTES: usize = 21;
/// Bytes that memory for parity adds to a clearance (P4.4).
pub const CLEARANCE_PARITY_BYTES: usize = 20;
/// Bytes that terms add to a clearance (P4.4).
pub const CLEARANCE_TERMS_BYTES: usize = 8;
/// Bytes that an ACK takes in a packet before its bits (P4.5).
pub const ACK_OVERHEAD_BYTES: usize = MESSAGE_OVERHEAD_BYTES + 20;
/// Bytes that a NACK takes in a packet before its first range (P4.6).
pub const NACK_OVERHEAD_BYTES: usize = MESSAGE_OVERHEAD_BYTES + 8;
/// Bytes of one range of a NACK (P4.6).
pub const NACK_RANGE_BYTES: usize = 8;

/// A message's type.
pub(super) fn kind(control: &Control) -> u8 {
    match control {
        Control::Offer(_) => OFFER,
        Control::ClearToSend(_) => CLEAR_TO_SEND,
        Control::Ack(_) => ACK,
        Control::Nack(_) => NACK,
        Control::ReceiveComplete { .. } => RECEIVE_COMPLETE,
        Control::Loss(_) => LOSS,
        Control::PathFeedback(_) => PATH_FEEDBACK,
        Control::Read(_) => READ,
        Control::CreditRequest(_) => CREDIT_REQUEST,
        Control::Credit(_) => CREDIT,
    }
}

/// Appends a message's body.
pub(super) fn encode(control: &Control, out: &mut Vec<u8>) {
    match control {
        Control::Offer(offer) => encode_offer(offer, out),
        Control::ClearToSend(cts) => {
            for number in [cts.posted, cts.offers, cts.first] {
                out.extend(number.to_be_bytes());
            }
            for clearance in &cts.clearances {
                encode_clearance(clearance, out);
            }
        }
        Control::Ack(ack) => {
            out.extend(ack.message.to_be_bytes());
            for number in [ack.cumulative, ack.seen, ack.window_start] {
                out.extend(number.to_be_bytes());
            }
            out.extend(&ack.bits);
        }
        Control::Nack(nack) => {
            out.extend(nack.message.to_be_bytes());
            for range in &nack.lost {
                out.extend(range.start.to_be_bytes());
                out.extend(range.end.to_be_bytes());
            }
        }
        Control::ReceiveComplete { message, outcome } => {
            out.extend(message.to_be_bytes());
            out.push(match outcome {
                Outcome::Whole => WHOLE,
                Outcome::Partial => PARTIAL,
                Outcome::Failed => FAILED,
            });
        }
        Control::Loss(loss) => {
            for number in [
                loss.judged_chunks,
                loss.lost_chunks,
                loss.bursts,
                loss.longest_burst_chunks,
            ] {
                out.extend(number.to_be_bytes());
            }
        }
        Control::PathFeedback(feedback) => encode_path_feedback(feedback, out),
        Control::Read(read) => encode_read(read, out),
        Control::CreditRequest(request) => {
            for number in [request.path, request.used_bytes, request.wanted_bytes] {
                out.extend(number.to_be_bytes());
            }
        }
        Control::Credit(credit) => {
            for number in [credit.path, credit.granted_bytes] {
                out.extend(number.to_be_bytes());
            }
        }
    }
}

fn encode_read(read: &ReadRequest, out: &mut Vec<u8>) {
    for number in [
        read.message,
        read.region,
        read.offset,
        read.length,
        read.remaining_ns,
    ] {
        out.extend(number.to_be_bytes());
    }
    out.push(read.scheme.id);
    out.extend(read.scheme.params);
}

fn encode_path_feedback(feedback: &PathFeedback, out: &mut Vec<u8>) {
    out.extend(feedback.path.to_be_bytes());
    out.extend(feedback.message.to_bits().to_be_bytes());
    out.extend(feedback.packet.to_be_bytes());
    for number in [
        feedback.hold_ns,
        feedback.received_packets,
        feedback.received_bytes,
        feedback.ect_packets,
        feedback.marked_packets,
        feedback.dropped_packets,
        feedback.drain_bps,
    ] {
        out.extend(number.to_be_bytes());
    }
}

fn encode_offer(offer: &Offer, out: &mut Vec<u8>) {
    let mut flags = 0;
    if offer.length.is_some() {
        flags |= OFFER_LENGTH_KNOWN;
    }
    if offer.has_immediate {
        flags |= OFFER_HAS_IMMEDIATE;
    }
    flags |= match offer.withdrawn {
        None => 0,
        Some(Withdrawal::GivenUp) => OFFER_WITHDRAWN,
        Some(Withdrawal::Expired) => OFFER_WITHDRAWN | OFFER_EXPIRED,
        Some(Withdrawal::Refused(ReadRefusal::UnknownRegion)) => {
            OFFER_WITHDRAWN | OFFER_UNKNOWN_REGION
        }
        Some(Withdrawal::Refused(ReadRefusal::OutOfRange)) => OFFER_WITHDRAWN | OFFER_OUT_OF_RANGE,
        Some(Withdrawal::Refused(ReadRefusal::Scheme)) => OFFER_WITHDRAWN | OFFER_SCHEME,
    };
    if offer.answers_read {
        flags |= OFFER_ANSWERS_READ;
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

fn encode_clearance(clearance: &Clearance, out: &mut Vec<u8>) {
    let mut flags = clearance.parity.map_or(0, |_| CLEARANCE_HAS_PARITY);
    if clearance.terms != Terms::default() {
        flags |= CLEARANCE_HAS_TERMS;
    }
    let data = Place {
        rkey: clearance.rkey,
        base: clearance.base,
        length: clearance.length,
    };
    out.push(clearance.generation | flags);
    for place in [data].into_iter().chain(clearance.parity) {
        out.extend(place.rkey.to_be_bytes());
        out.extend(place.base.to_be_bytes());
        out.extend(place.length.to_be_bytes());
    }
    if clearance.terms != Terms::default() {
        encode_terms(&clearance.terms, out);
    }
}

fn encode_terms(terms: &Terms, out: &mut Vec<u8>) {
    let flags = [
        (terms.exact_length, TERMS_EXACT_LENGTH),
        (terms.immediate, TERMS_IMMEDIATE),
        (terms.scheme.is_some(), TERMS_SCHEME),
        (terms.accepts_partial, TERMS_ACCEPT_PARTIAL),
        (terms.answers_read, TERMS_ANSWERS_READ),
    ];
    let set = flags.into_iter().filter(|(is_set, _)| *is_set);
    out.push(set.fold(0, |byte, (_, flag)| byte | flag));
    let scheme = terms.scheme.unwrap_or(SchemeTag::NONE);
    out.push(scheme.id);
    out.extend(scheme.params);
}

/// Reads a body; `None` if the type is unknown.
pub(super) fn decode(kind: u8, body: &[u8]) -> Option<Result<Control, ParseError>> {
    let mut reader = Reader(body);
    let control = match kind {
        OFFER => reader.offer(),
        CLEAR_TO_SEND => reader.clear_to_send().map(Control::ClearToSend).map(Ok),
        ACK => reader.ack().map(Control::Ack).map(Ok),
        NACK => reader.nack().map(Control::Nack).map(Ok),
        RECEIVE_COMPLETE => reader.receive_complete(),
        LOSS => reader.loss().map(Control::Loss).map(Ok),
        PATH_FEEDBACK => reader.path_feedback().map(Control::PathFeedback).map(Ok),
        READ => reader.read().map(Control::Read).map(Ok),
        CREDIT_REQUEST => reader.credit_request().map(Control::CreditRequest).map(Ok),
        CREDIT => reader.credit().map(Control::Credit).map(Ok),
        _ => return None,
    };
    let bytes = body.len();
    Some(match control {
        Some(Ok(control)) if reader.0.is_empty() => check(&control).map(|()| control),
        Some(Err(error)) if reader.0.is_empty() => Err(error),
        _ => Err(ParseError::Length { kind, bytes }),
    })
}

/// Why an offer with these flags was withdrawn, if it was.
fn withdrawal(flags: u8) -> Option<Withdrawal> {
    if flags & OFFER_WITHDRAWN == 0 {
        return None;
    }
    Some(match flags & OFFER_REFUSAL {
        OFFER_UNKNOWN_REGION => Withdrawal::Refused(ReadRefusal::UnknownRegion),
        OFFER_OUT_OF_RANGE => Withdrawal::Refused(ReadRefusal::OutOfRange),
        OFFER_SCHEME => Withdrawal::Refused(ReadRefusal::Scheme),
        _ if flags & OFFER_EXPIRED != 0 => Withdrawal::Expired,
        _ => Withdrawal::GivenUp,
    })
}

/// The unread rest of a body. Each method consumes what it reads, and returns `None` if too few
/// bytes are left.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Items to the end of the body, each taking bytes: no more of them than bytes came.
    fn rest<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        while !self.0.is_empty() {
            items.push(item(self)?);
        }
        Some(items)
    }

    fn scheme(&mut self) -> Option<SchemeTag> {
        Some(SchemeTag {
            id: self.u8()?,
            params: self.array()?,
        })
    }

    fn offer(&mut self) -> Option<Result<Control, ParseError>> {
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
            length: (flags & OFFER_LENGTH_KNOWN != 0).then_some(length),
            has_immediate: flags & OFFER_HAS_IMMEDIATE != 0,
            scheme,
            critical,
            cleared,
            withdrawn: withdrawal(flags),
            answers_read: flags & OFFER_ANSWERS_READ != 0,
        })))
    }

    fn clear_to_send(&mut self) -> Option<ClearToSend> {
        Some(ClearToSend {
            posted: self.u64()?,
            offers: self.u64()?,
            first: self.u64()?,
            clearances: self.rest(Self::clearance)?,
        })
    }

    fn clearance(&mut self) -> Option<Clearance> {
        let byte = self.u8()?;
        let Place { rkey, base, length } = self.place()?;
        let parity = if byte & CLEARANCE_HAS_PARITY == 0 {
            None
        } else {
            Some(self.place()?)
        };
        let terms = if byte & CLEARANCE_HAS_TERMS == 0 {
            Terms::default()
        } else {
            self.terms()?
        };
        Some(Clearance {
            generation: byte & !(CLEARANCE_HAS_PARITY | CLEARANCE_HAS_TERMS),
            rkey,
            base,
            length,
            parity,
            terms,
        })
    }

    fn terms(&mut self) -> Option<Terms> {
        let flags = self.u8()?;
        let scheme = self.scheme()?;
        Some(Terms {
            exact_length: flags & TERMS_EXACT_LENGTH != 0,
            immediate: flags & TERMS_IMMEDIATE != 0,
            scheme: (flags & TERMS_SCHEME != 0).then_some(scheme),
            accepts_partial: flags & TERMS_ACCEPT_PARTIAL != 0,
            answers_read: flags & TERMS_ANSWERS_READ != 0,
        })
    }

    fn place(&mut self) -> Option<Place> {
        Some(Place {
            rkey: self.u32()?,
            base: self.u64()?,
            length: self.u64()?,
        })
    }

    fn ack(&mut self) -> Option<Ack> {
        Some(Ack {
            message: self.u64()?,
            cumulative: self.u32()?,
            seen: self.u32()?,
            window_start: self.u32()?,
            bits: core::mem::take(&mut self.0).to_vec(),
        })
    }

    fn nack(&mut self) -> Option<Nack> {
        Some(Nack {
            message: self.u64()?,
            lost: self.rest(|reader| Some(reader.u32()?..reader.u32()?))?,
        })
    }

    fn receive_complete(&mut self) -> Option<Result<Control, ParseError>> {
        let message = self.u64()?;
        let outcome = match self.u8()? {
            WHOLE => Outcome::Whole,
            PARTIAL => Outcome::Partial,
            FAILED => Outcome::Failed,
            unknown => return Some(Err(ParseError::Outcome(unknown))),
        };
        Some(Ok(Control::ReceiveComplete { message, outcome }))
    }

    fn loss(&mut self) -> Option<LossCounts> {
        Some(LossCounts {
            judged_chunks: self.u64()?,
            lost_chunks: self.u64()?,
            bursts: self.u64()?,
            longest_burst_chunks: self.u64()?,
        })
    }

    fn path_feedback(&mut self) -> Option<PathFeedback> {
        Some(PathFeedback {
            path: self.u64()?,
            message: MessageId::from_bits(self.u64()?),
            packet: self.u32()?,
            hold_ns: self.u64()?,
            received_packets: self.u64()?,
            received_bytes: self.u64()?,
            ect_packets: self.u64()?,
            marked_packets: self.u64()?,
            dropped_packets: self.u64()?,
            drain_bps: self.u64()?,
        })
    }

    fn read(&mut self) -> Option<ReadRequest> {
        Some(ReadRequest {
            message: self.u64()?,
            region: self.u64()?,
            offset: self.u64()?,
            length: self.u64()?,
            remaining_ns: self.u64()?,
            scheme: self.scheme()?,
        })
    }

    fn credit_request(&mut self) -> Option<CreditRequest> {
        Some(CreditRequest {
            path: self.u64()?,
            used_bytes: self.u64()?,
            wanted_bytes: self.u64()?,
        })
    }

    fn credit(&mut self) -> Option<Credit> {
        Some(Credit {
            path: self.u64()?,
            granted_bytes: self.u64()?,
        })
    }
}
