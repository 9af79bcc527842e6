//! Checks the values of control messages (P4.3 to P4.8, P4.10 to P4.12).

use super::critical::MAX_CRITICAL_RANGES;
use super::message::{Ack, ClearToSend, Control, CreditRequest, PeerFeedback, StaleCounts};
use core::ops::Range;

/// Why a control message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The packet ends within a message.
    #[error("{have_bytes} bytes are left of a control packet, the next message takes {need_bytes}")]
    Truncated {
        /// Bytes of the message, or of its header where that is cut.
        need_bytes: usize,
        /// Bytes left.
        have_bytes: usize,
    },
    /// The body has a length that no message of its type has.
    #[error("a control message of type {kind} cannot have {bytes} bytes")]
    Length {
        /// The message's type (P4.1).
        kind: u8,
        /// Bytes of the body.
        bytes: usize,
    },
    /// A clear-to-send has clearances for messages whose receives are not posted according to it.
    #[error("{count} clearances from message {first} on, of {posted} receives posted")]
    Clearances {
        /// Message of the first clearance.
        first: u64,
        /// Number of clearances.
        count: usize,
        /// Receives posted.
        posted: u64,
    },
    /// The window of an ACK does not start at a multiple of 8.
    #[error("an ACK's window starts at chunk {0}, not at a multiple of 8")]
    WindowStart(u32),
    /// The window of an ACK extends beyond the highest possible chunk number.
    #[error("an ACK's window starts at chunk {start} and has {bytes} bytes")]
    WindowEnd {
        /// First chunk.
        start: u32,
        /// Bytes of bits.
        bytes: usize,
    },
    /// A range of a NACK is empty or starts before the end of the previous one.
    #[error("a NACK has chunks {start}..{end} after those up to {after}")]
    Range {
        /// First chunk.
        start: u32,
        /// One past the last.
        end: u32,
        /// One past the last chunk of the range before, or 0.
        after: u32,
    },
    /// The critical ranges of an offer are too many, empty, or not ascending with a chunk between
    /// any two.
    #[error(
        "message {message} is offered with {count} critical ranges; at most {MAX_CRITICAL_RANGES} \
         were wanted, ascending, none empty, and with a chunk between any two"
    )]
    Critical {
        /// The message.
        message: u64,
        /// Number of ranges.
        count: usize,
    },
    /// A peer feedback counts more packets of one kind than in total.
    #[error(
        "a peer feedback has {received} packets, {ect} of them with ECT and {marked} of these \
         marked; {} packets, {} of them marked, brought no new data",
        stale.packets,
        stale.marked_packets
    )]
    Counts {
        /// Packets that arrived.
        received: u64,
        /// Those with ECT or CE.
        ect: u64,
        /// Those with CE.
        marked: u64,
        /// Those without new data.
        stale: StaleCounts,
    },
    /// A credit request wants less credit in total than the sender has used.
    #[error("a credit request wants {wanted} bytes in total, of which {used} are used")]
    Wanted {
        /// Bytes of credit wanted in total.
        wanted: u64,
        /// Bytes of credit used.
        used: u64,
    },
    /// No outcome has this number.
    #[error("outcome {0} came, 0 to 2 were wanted")]
    Outcome(u8),
}

/// Checks that the numbers of a message are consistent.
pub(super) fn check(control: &Control) -> Result<(), ParseError> {
    match control {
        Control::ClearToSend(cts) => check_clearances(cts),
        Control::Ack(ack) => check_window(ack),
        Control::Nack(nack) => check_ranges(&nack.lost),
        Control::PeerFeedback(feedback) => check_counts(feedback),
        Control::CreditRequest(request) => check_wanted(request),
        Control::Offer(_)
        | Control::ReceiveComplete { .. }
        | Control::Loss(_)
        | Control::Read(_)
        | Control::Credit(_) => Ok(()),
    }
}

fn check_clearances(cts: &ClearToSend) -> Result<(), ParseError> {
    let count = cts.clearances.len();
    let end = u64::try_from(count)
        .ok()
        .and_then(|n| cts.first.checked_add(n));
    if end.is_some_and(|end| end <= cts.posted) {
        return Ok(());
    }
    Err(ParseError::Clearances {
        first: cts.first,
        count,
        posted: cts.posted,
    })
}

fn check_window(ack: &Ack) -> Result<(), ParseError> {
    let start = ack.window_start;
    if !start.is_multiple_of(8) {
        return Err(ParseError::WindowStart(start));
    }
    let bytes = ack.bits.len();
    let chunks = u32::try_from(bytes).ok().and_then(|n| n.checked_mul(8));
    match chunks.and_then(|n| start.checked_add(n)) {
        Some(_) => Ok(()),
        None => Err(ParseError::WindowEnd { start, bytes }),
    }
}

fn check_ranges(ranges: &[Range<u32>]) -> Result<(), ParseError> {
    let mut after = 0;
    for &Range { start, end } in ranges {
        if start < after || end <= start {
            return Err(ParseError::Range { start, end, after });
        }
        after = end;
    }
    Ok(())
}

fn check_counts(feedback: &PeerFeedback) -> Result<(), ParseError> {
    let received = feedback.received_packets;
    let (ect, marked) = (feedback.ect_packets, feedback.marked_packets);
    let stale = feedback.stale;
    let news = received.checked_sub(stale.packets);
    let marked_news = marked.checked_sub(stale.marked_packets);
    let is_possible = news.zip(marked_news).is_some_and(|(all, of)| of <= all);
    if marked <= ect && ect <= received && stale.marked_packets <= stale.packets && is_possible {
        return Ok(());
    }
    Err(ParseError::Counts {
        received,
        ect,
        marked,
        stale,
    })
}

fn check_wanted(request: &CreditRequest) -> Result<(), ParseError> {
    let (wanted, used) = (request.wanted_bytes, request.used_bytes);
    if used <= wanted {
        Ok(())
    } else {
        Err(ParseError::Wanted { wanted, used })
    }
}
