//! Whether a message is what its receiver demands (P3.12). Both ends ask the same question.

use farwrite_wire::control::{Clearance, Offer, SchemeTag, Terms};

use crate::event::Refusal;
use crate::geometry::Geometry;
use crate::memory::Extent;

/// What a sender says of its message.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    /// `None` while a streaming send is open.
    pub(crate) length: Option<u64>,
    pub(crate) has_immediate: bool,
    pub(crate) scheme: SchemeTag,
}

impl From<&Offer> for Described {
    fn from(offer: &Offer) -> Self {
        Self {
            length: offer.length,
            has_immediate: offer.has_immediate,
            scheme: offer.scheme,
        }
    }
}

/// What is known of a message from its terms alone. Packets without bytes show no key, so a message
/// that has some is not known before its offer (P3.7).
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
/// The first thing that does not fit.
pub(crate) fn check(clearance: &Clearance, message: &Described) -> Result<(), Refusal> {
    let (capacity, terms) = (clearance.length, &clearance.terms);
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
