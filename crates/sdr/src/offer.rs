//! Offers: what an offer may contain (P3.8), and whether the message meets the receiver's terms
//! (P3.12).

use farwrite_wire::control::{Clearance, Offer, SchemeTag, Terms};

use crate::error::Violation;
use crate::event::Refusal;
use crate::geometry::Geometry;
use crate::memory::Extent;

/// Checks that a correct sender can make this offer to an end where `posted` receives are posted.
///
/// # Errors
/// The first value that a correct sender does not send.
pub(crate) fn check_offer(
    geometry: &Geometry,
    posted: u64,
    offer: &Offer,
) -> Result<(), Violation> {
    let message = offer.message;
    // Only messages whose receive has ended here can have ended at the sender. The sender is at
    // most `slots` messages ahead of them.
    let limit = posted + u64::from(geometry.slots());
    if message >= limit {
        return Err(Violation::MessageOutOfRange { message, limit });
    }
    let max = geometry.config().max_message_bytes;
    if let Some(length) = offer.length.filter(|&length| length > max) {
        return Err(Violation::OfferTooLong {
            message,
            length,
            max,
        });
    }
    let chunks = offer
        .length
        .map_or(0, |length| geometry.chunks(length, offer.has_immediate));
    let end = offer.critical.end();
    if end > chunks {
        return Err(Violation::CriticalOutOfRange {
            message,
            end,
            chunks,
        });
    }
    if offer.has_immediate && geometry.fragments() == 0 {
        return Err(Violation::ImmediatesOff(message));
    }
    Ok(())
}

/// Merges an offer with one known before. Returns the offer to keep, or `None` if the new offer
/// adds nothing.
///
/// # Errors
/// The two offers contradict each other.
pub(crate) fn merge(known: Option<&Offer>, new: &Offer) -> Result<Option<Offer>, Violation> {
    let Some(known) = known else {
        return Ok(Some(*new));
    };
    let lengths_differ = known.length.zip(new.length).is_some_and(|(a, b)| a != b);
    let differ = lengths_differ
        || known.scheme != new.scheme
        || known.critical != new.critical
        || known.answers_read != new.answers_read
        || known.has_immediate != new.has_immediate;
    if differ {
        return Err(Violation::OfferChanged(new.message));
    }
    let merged = Offer {
        length: known.length.or(new.length),
        withdrawn: known.withdrawn.or(new.withdrawn),
        ..*new
    };
    let adds = merged.length != known.length || merged.withdrawn != known.withdrawn;
    Ok((adds && known.withdrawn.is_none()).then_some(merged))
}

/// The sender's description of its message.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    /// `None` while a streaming send is open.
    pub(crate) length: Option<u64>,
    pub(crate) has_immediate: bool,
    pub(crate) scheme: SchemeTag,
    pub(crate) answers_read: bool,
}

impl From<&Offer> for Described {
    fn from(offer: &Offer) -> Self {
        Self {
            length: offer.length,
            has_immediate: offer.has_immediate,
            scheme: offer.scheme,
            answers_read: offer.answers_read,
        }
    }
}

/// Returns what the terms alone determine about a message. Packets without bytes show no key, so if
/// a message has such packets, nothing about it is known before its offer (P3.7).
pub(crate) fn extent(geometry: &Geometry, terms: &Terms, length: u64) -> Option<Extent> {
    let has_immediate = terms.immediate;
    let is_known = terms.exact_length && !geometry.has_empty_packets(length, has_immediate);
    is_known.then_some(Extent {
        length,
        has_immediate,
    })
}

/// Checks a message against its buffer and the terms of its receive.
///
/// # Errors
/// The first mismatch.
pub(crate) fn check_fit(clearance: &Clearance, message: &Described) -> Result<(), Refusal> {
    let (capacity, terms) = (clearance.length, &clearance.terms);
    if terms.answers_read != message.answers_read {
        let offered = message.answers_read;
        return Err(Refusal::Read { offered });
    }
    let offered = message.scheme;
    if let Some(expected) = terms.scheme.filter(|expected| *expected != offered) {
        return Err(Refusal::Scheme { offered, expected });
    }
    if terms.exact_length && message.has_immediate != terms.immediate {
        let offered = message.has_immediate;
        return Err(Refusal::Immediate { offered });
    }
    match message.length {
        Some(length) if terms.exact_length && length != capacity => Err(Refusal::Length {
            offered: length,
            expected: capacity,
        }),
        Some(length) if length > capacity => Err(Refusal::TooLong { length, capacity }),
        _ => Ok(()),
    }
}
