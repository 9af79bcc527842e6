//! Reads the list of files that a sender offers.

use farwrite_files::{Expected, Message, MessageKind, Offer, TransferPlan, recv_manifest};

use crate::memory_pool::{MemoryShare, detail_bytes, list_bytes};
use crate::setup::{SETUP, Setup, unexpected};
use crate::{Error, ErrorKind};

/// Reads the list. `list` bounds its memory.
pub(crate) fn read_offer(
    setup: &mut Setup<'_>,
    plan: &TransferPlan,
    list: &mut MemoryShare,
) -> Result<Offer, Error> {
    let mut left = u64::from(plan.entries);
    // Each message has a time limit. The plan limits the number of entries, and they limit that of details.
    recv_manifest(plan, || {
        let message = setup.message(setup.patience())?;
        let bytes = match &message {
            Message::Entries(entries) => {
                left = left.saturating_sub(entries.len() as u64);
                list_bytes(entries)
            }
            Message::Details(details) => detail_bytes(details),
            _ => 0,
        };
        if bytes > 0 && !list.take(bytes) {
            match message {
                Message::Details(_) => skip_details(setup, plan.entries)?,
                _ => skip_entries(setup, left)?,
            }
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

/// Reads the next entries of a manifest without storing them. If this end closed the channel while the sender
/// still writes, the reason of the refusal could be lost.
pub(crate) fn skip_entries(setup: &mut Setup<'_>, mut left: u64) -> Result<(), Error> {
    while left > 0 {
        match setup.message(SETUP)? {
            Message::Entries(entries) if !entries.is_empty() => {
                left = left.saturating_sub(entries.len() as u64);
            }
            other => {
                let want = Expected::Message(MessageKind::Entries);
                return Err(unexpected(other, want));
            }
        }
    }
    Ok(())
}

/// Reads the next details of a manifest without storing them, and the message after them: see [`skip_entries`].
fn skip_details(setup: &mut Setup<'_>, entries: u32) -> Result<(), Error> {
    // Each entry has at most one.
    let mut left = entries as usize;
    while let Message::Details(details) = setup.message(SETUP)?
        && left > 0
    {
        left = left.saturating_sub(details.len().max(1));
    }
    Ok(())
}
