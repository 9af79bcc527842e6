//! Reads the list of files that a sender offers.

use farwrite_files::{Message, Offer, TransferPlan, recv_manifest};

use crate::memory_pool::{MemoryShare, detail_bytes, list_bytes};
use crate::setup::Setup;
use crate::{Error, ErrorKind};

/// Reads the list. `list` bounds its memory.
pub(crate) fn read_offer(
    setup: &mut Setup<'_>,
    plan: &TransferPlan,
    list: &mut MemoryShare,
) -> Result<Offer, Error> {
    // Each message has a time limit. The plan limits the number of entries, and they limit that of details.
    recv_manifest(plan, || {
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
    })
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
