//! Reads the list of files that a sender offers.

use farwrite_files::{Message, Offer, TransferPlan, recv_manifest};

use crate::memory_pool::{MemoryShare, detail_bytes, list_bytes};
use crate::setup::Setup;
use crate::{Error, ErrorKind, ReceiveSettings};

/// Reads the list, and checks that this end allows what the sender wants. `list` bounds its memory.
/// `delete` of the result is what the sender wants to remove, within the limit of this end.
pub(crate) fn read_offer(
    setup: &mut Setup<'_>,
    plan: &TransferPlan,
    settings: &ReceiveSettings,
    list: &mut MemoryShare,
) -> Result<Offer, Error> {
    settings.check(plan)?;
    // Each message has a time limit. The plan limits the number of entries, and they limit that of details.
    let mut offer = recv_manifest(plan, || {
        let message = setup.message(setup.patience())?;
        let bytes = match &message {
            Message::Entries(entries) => list_bytes(entries),
            Message::Details(details) => detail_bytes(details),
            _ => 0,
        };
        if bytes > 0 && !list.take(bytes) {
            return Err(too_long(plan, list.fits_alone(bytes)));
        }
        Ok(message)
    })?;
    settings.check_lengths(&offer.manifest)?;
    settings.check_names(&offer.manifest)?;
    offer.delete = settings.limit_delete(offer.delete)?;
    Ok(offer)
}

/// The list of files takes more memory than this end has now, or than it ever gives one of several senders.
fn too_long(plan: &TransferPlan, fits_alone: bool) -> Error {
    let (kind, what) = match fits_alone {
        true => (
            ErrorKind::Busy,
            "the lists of other senders use the memory of the receiver; try again later",
        ),
        false => (
            ErrorKind::Mismatch,
            "this is more than the receiver takes from one of several senders; send fewer at a time, or \
             run the receiver with --max-senders 1",
        ),
    };
    let what = format!(
        "the list has {} files and directories: {what}",
        plan.entries
    );
    Error::new(kind, what)
}
