//! What a clear-to-send may say (P3.8).

use farwrite_wire::control::{ClearToSend, Clearance};

use crate::error::Violation;
use crate::geometry::Geometry;

/// The most receives that a peer can have posted where `started` sends are started: one more in
/// every slot whose last message was offered (P3.6).
pub(crate) fn limit(geometry: &Geometry, started: u64) -> u64 {
    started + u64::from(geometry.slots())
}

/// Whether a receiver can say this to an end where `started` sends are started.
///
/// # Errors
/// What it must not say.
pub(crate) fn check(geometry: &Geometry, started: u64, cts: &ClearToSend) -> Result<(), Violation> {
    let within = |message: u64, limit: u64| {
        let fits = message <= limit;
        fits.then_some(())
            .ok_or(Violation::MessageOutOfRange { message, limit })
    };
    within(cts.posted, limit(geometry, started))?;
    // A receive may be over before its message is started, let alone offered.
    within(cts.offers, started.max(cts.posted))?;
    let end = cts.first.saturating_add(cts.clearances.len() as u64);
    within(end, cts.posted)?;
    let max = geometry.config().max_message_bytes;
    for (message, clearance) in (cts.first..).zip(&cts.clearances) {
        let Clearance {
            generation,
            base,
            length,
            parity,
            ..
        } = *clearance;
        let lies_within = |base: u64, length| length <= max && base.checked_add(length).is_some();
        let parity_fits = parity.is_none_or(|place| lies_within(place.base, place.length));
        let fits = lies_within(base, length) && parity_fits;
        if !fits || generation != geometry.generation(message) {
            return Err(Violation::BadClearance {
                message,
                generation,
                base,
                length,
            });
        }
    }
    Ok(())
}
