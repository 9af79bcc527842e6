//! Clear-to-sends as bytes (P4.4).

use alloc::vec::Vec;

use super::Reader;
use crate::control::message::{ClearToSend, Clearance, Place, SchemeTag, Terms};
use crate::control::sealed_packet::MESSAGE_OVERHEAD_BYTES;

/// A bit in the generation byte of a clearance: memory for parity follows.
const HAS_PARITY: u8 = 0x80;
/// A bit in the generation byte of a clearance: terms follow.
const HAS_TERMS: u8 = 0x40;

const TERMS_EXACT_LENGTH: u8 = 1;
const TERMS_IMMEDIATE: u8 = 2;
const TERMS_SCHEME: u8 = 4;
const TERMS_ACCEPT_PARTIAL: u8 = 8;
const TERMS_ANSWERS_READ: u8 = 0x10;

/// Bytes that a clear-to-send takes in a packet before its first clearance (P4.4).
pub const CLEAR_TO_SEND_OVERHEAD_BYTES: usize = MESSAGE_OVERHEAD_BYTES + 24;
/// Bytes of one clearance (P4.4).
pub const CLEARANCE_BYTES: usize = 21;
/// Bytes that memory for parity adds to a clearance (P4.4).
pub const CLEARANCE_PARITY_BYTES: usize = 20;
/// Bytes that terms add to a clearance (P4.4).
pub const CLEARANCE_TERMS_BYTES: usize = 8;
pub(super) fn encode(cts: &ClearToSend, out: &mut Vec<u8>) {
    for number in [cts.posted, cts.offers, cts.first] {
        out.extend(number.to_be_bytes());
    }
    for clearance in &cts.clearances {
        encode_clearance(clearance, out);
    }
}

fn encode_clearance(clearance: &Clearance, out: &mut Vec<u8>) {
    let mut flags = clearance.parity.map_or(0, |_| HAS_PARITY);
    if clearance.terms != Terms::default() {
        flags |= HAS_TERMS;
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

impl Reader<'_> {
    pub(super) fn clear_to_send(&mut self) -> Option<ClearToSend> {
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
        let parity = if byte & HAS_PARITY == 0 {
            None
        } else {
            Some(self.place()?)
        };
        let terms = if byte & HAS_TERMS == 0 {
            Terms::default()
        } else {
            self.terms()?
        };
        Some(Clearance {
            generation: byte & !(HAS_PARITY | HAS_TERMS),
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
}
