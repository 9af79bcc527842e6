//! What an offer may say (P3.8).

use farwrite_wire::control::Offer;

use crate::error::Violation;
use crate::geometry::Geometry;

/// Whether a sender can make this offer to an end where `posted` receives are posted.
///
/// # Errors
/// What it must not say.
pub(crate) fn check(geometry: &Geometry, posted: u64, offer: &Offer) -> Result<(), Violation> {
    let message = offer.message;
    // At most what is over here is over at the sender, which is at most `slots` ahead of that.
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
    if offer.has_immediate && geometry.fragments() == 0 {
        return Err(Violation::ImmediatesOff(message));
    }
    Ok(())
}

/// What an offer adds to one known before: the offer to keep from now on, `None` if it adds nothing.
///
/// # Errors
/// The two disagree.
pub(crate) fn merge(known: Option<&Offer>, new: &Offer) -> Result<Option<Offer>, Violation> {
    let Some(known) = known else {
        return Ok(Some(*new));
    };
    let lengths_differ = known.length.zip(new.length).is_some_and(|(a, b)| a != b);
    if lengths_differ || known.scheme != new.scheme || known.has_immediate != new.has_immediate {
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
