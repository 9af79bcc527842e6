//! The bodies of control messages as bytes (P4.3 to P4.8, P4.10 to P4.12).

mod clearance;
mod offer;

use super::message::{
    Ack, Control, Credit, CreditRequest, LossCounts, MessageId, Nack, Outcome, PeerFeedback,
    ReadRequest, SchemeTag, StaleCounts,
};
use super::sealed_packet::MESSAGE_OVERHEAD_BYTES;
use super::value_checks::{ParseError, check};
use alloc::vec::Vec;

pub use clearance::{
    CLEAR_TO_SEND_OVERHEAD_BYTES, CLEARANCE_BYTES, CLEARANCE_PARITY_BYTES, CLEARANCE_TERMS_BYTES,
};

const OFFER: u8 = 1;
const CLEAR_TO_SEND: u8 = 2;
const ACK: u8 = 3;
const NACK: u8 = 4;
const RECEIVE_COMPLETE: u8 = 5;
const LOSS: u8 = 6;
const PEER_FEEDBACK: u8 = 7;
const READ: u8 = 8;
const CREDIT_REQUEST: u8 = 9;
const CREDIT: u8 = 10;

/// Set beside the message in a peer feedback whose newest packet was late (P4.10).
const LATE: u64 = 1 << 61;

const WHOLE: u8 = 0;
const PARTIAL: u8 = 1;
const FAILED: u8 = 2;

/// Bytes that an ACK takes in a packet before its bits (P4.5).
pub const ACK_OVERHEAD_BYTES: usize = MESSAGE_OVERHEAD_BYTES + 20;
/// Bytes that a NACK takes in a packet before its first range (P4.6).
pub const NACK_OVERHEAD_BYTES: usize = MESSAGE_OVERHEAD_BYTES + 8;
/// Bytes of one range of a NACK (P4.6).
pub const NACK_RANGE_BYTES: usize = 8;

pub(super) fn kind(control: &Control) -> u8 {
    match control {
        Control::Offer(_) => OFFER,
        Control::ClearToSend(_) => CLEAR_TO_SEND,
        Control::Ack(_) => ACK,
        Control::Nack(_) => NACK,
        Control::ReceiveComplete { .. } => RECEIVE_COMPLETE,
        Control::Loss(_) => LOSS,
        Control::PeerFeedback(_) => PEER_FEEDBACK,
        Control::Read(_) => READ,
        Control::CreditRequest(_) => CREDIT_REQUEST,
        Control::Credit(_) => CREDIT,
    }
}

pub(super) fn encode(control: &Control, out: &mut Vec<u8>) {
    match control {
        Control::Offer(offer) => offer::encode(offer, out),
        Control::ClearToSend(cts) => clearance::encode(cts, out),
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
        Control::PeerFeedback(feedback) => encode_peer_feedback(feedback, out),
        Control::Read(read) => encode_read(read, out),
        Control::CreditRequest(request) => {
            for number in [request.epoch, request.used_bytes, request.wanted_bytes] {
                out.extend(number.to_be_bytes());
            }
        }
        Control::Credit(credit) => {
            for number in [credit.epoch, credit.granted_bytes] {
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

fn encode_peer_feedback(feedback: &PeerFeedback, out: &mut Vec<u8>) {
    out.extend(feedback.epoch.to_be_bytes());
    let late = if feedback.is_late { LATE } else { 0 };
    out.extend((feedback.message.to_bits() & !LATE | late).to_be_bytes());
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
    let stale = feedback.stale;
    if stale != StaleCounts::default() {
        out.extend(stale.packets.to_be_bytes());
        out.extend(stale.marked_packets.to_be_bytes());
    }
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
        PEER_FEEDBACK => reader.peer_feedback().map(Control::PeerFeedback).map(Ok),
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

    fn peer_feedback(&mut self) -> Option<PeerFeedback> {
        let epoch = self.u64()?;
        let message = self.u64()?;
        Some(PeerFeedback {
            epoch,
            message: MessageId::from_bits(message & !LATE),
            is_late: message & LATE != 0,
            packet: self.u32()?,
            hold_ns: self.u64()?,
            received_packets: self.u64()?,
            received_bytes: self.u64()?,
            ect_packets: self.u64()?,
            marked_packets: self.u64()?,
            dropped_packets: self.u64()?,
            drain_bps: self.u64()?,
            stale: match self.0 {
                [] => StaleCounts::default(),
                _ => StaleCounts {
                    packets: self.u64()?,
                    marked_packets: self.u64()?,
                },
            },
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
            epoch: self.u64()?,
            used_bytes: self.u64()?,
            wanted_bytes: self.u64()?,
        })
    }

    fn credit(&mut self) -> Option<Credit> {
        Some(Credit {
            epoch: self.u64()?,
            granted_bytes: self.u64()?,
        })
    }
}
