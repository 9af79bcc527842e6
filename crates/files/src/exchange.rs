//! The manifest as messages (P8.3).

use farwrite_keys::ChannelMessage;

use super::due;
use super::{
    Compare, Delete, Detail, EntryRef, MAX_ENTRIES, Manifest, ManifestBuilder, ManifestError,
    Message, MessageError, Planned, TransferPlan,
};

/// Bytes of entries or details in one message, if one alone is not longer.
const BATCH_BYTES: usize = Message::MAX_BYTES / 4;
/// The minimum size of an entry without its name and target.
const ENTRY_BYTES: usize = 48;

/// The messages that carry a manifest, each with many entries.
pub fn manifest_messages(manifest: &Manifest) -> impl Iterator<Item = Message> {
    let weight = |entry: &EntryRef<'_>| entry.name.len() + entry.kind.target_bytes() + ENTRY_BYTES;
    let batches = batches(manifest.entries(), weight);
    batches.map(|batch| Message::Entries(batch.iter().map(EntryRef::to_entry).collect()))
}

/// The messages that carry the details of a manifest.
pub fn detail_messages(manifest: &Manifest) -> impl Iterator<Item = Message> {
    batches(manifest.details(), weight).map(Message::Details)
}

/// Cuts items with these weights into batches. An item may be heavier than a batch, but not longer than a message.
fn batches<T>(
    items: impl Iterator<Item = T>,
    weight: impl Fn(&T) -> usize,
) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.peekable();
    std::iter::from_fn(move || {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(next) =
            items.next_if(|next| bytes == 0 || bytes + weight(next) < BATCH_BYTES)
        {
            bytes += weight(&next);
            batch.push(next);
        }
        (!batch.is_empty()).then_some(batch)
    })
}

/// Bytes of a detail on the wire, at most.
fn weight(detail: &Detail) -> usize {
    let xattrs = detail.xattrs.iter();
    let xattrs: usize = xattrs.map(|it| it.name.len() + it.value.len() + 8).sum();
    let extents = detail.data.as_ref().map_or(0, Vec::len);
    20 + xattrs + extents * 20
}

/// What a sender offers (P8.1).
#[derive(Debug)]
pub struct Offer {
    /// The manifest.
    pub manifest: Manifest,
    /// How the receiver finds files that it has already.
    pub compare: Compare,
    /// What to remove.
    pub delete: Option<Delete>,
    /// The message after them.
    pub next: Message,
}

/// Receives the manifest that a plan announced, and checks every entry when it arrives. `next`
/// waits for the next message. It is called once for each message of the manifest and once for the message
/// after it, so the caller decides how long a message may take and what interrupts the wait.
///
/// # Errors
/// [`MessageError`] as `E`, and any error that `next` returns.
pub fn recv_manifest<E: From<MessageError>>(
    plan: &TransferPlan,
    mut next: impl FnMut() -> Result<Message, E>,
) -> Result<Offer, E> {
    if plan.entries > MAX_ENTRIES {
        return Err(refused(ManifestError::TooMany));
    }
    let mut builder = ManifestBuilder::default();
    while builder.entries() < plan.entries {
        let batch = match next()? {
            Message::Entries(entries) if !entries.is_empty() => entries,
            other => return Err(other.unexpected(due::ENTRIES).into()),
        };
        for entry in &batch {
            builder.push(entry).map_err(refused)?;
        }
    }
    as_planned(
        Planned::Entries,
        builder.entries().into(),
        plan.entries.into(),
    )
    .map_err(refused)?;
    let mut compare = None;
    let mut delete = None;
    let next = loop {
        match next()? {
            Message::Details(details)
                if !details.is_empty() && compare.is_none() && delete.is_none() =>
            {
                for detail in details {
                    builder.push_detail(detail).map_err(refused)?;
                }
            }
            Message::Compare(it) if compare.is_none() => compare = Some(it),
            Message::Delete(it) if delete.is_none() => delete = Some(it),
            other => break other,
        }
    };
    let manifest = builder.build().map_err(refused)?;
    as_planned(Planned::Bytes, manifest.stream_bytes(), plan.stream_bytes).map_err(refused)?;
    Ok(Offer {
        manifest,
        compare: compare.unwrap_or_default(),
        delete,
        next,
    })
}

fn refused<E: From<MessageError>>(error: ManifestError) -> E {
    MessageError::Manifest(error).into()
}

fn as_planned(what: Planned, came: u64, want: u64) -> Result<(), ManifestError> {
    if came == want {
        return Ok(());
    }
    Err(ManifestError::NotAsPlanned { what, came, want })
}
