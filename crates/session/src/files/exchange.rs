//! The manifest on its way through the channel (P8.3).

use super::{Entry, MAX_ENTRIES, Manifest, ManifestBuilder, ManifestError};
use crate::{ChannelMessage, Error, Message, Reader, TransferPlan, Writer};

/// Bytes of entries in one message; well below the limit of a message, since the last entry may
/// pass it.
const BATCH_BYTES: usize = Message::MAX_BYTES / 4;
/// At least what an entry takes beside its name.
const ENTRY_BYTES: usize = 48;

/// Sends all entries, in messages of many.
///
/// # Errors
/// As [`Writer::send`].
pub fn send_manifest(writer: &mut Writer, manifest: &Manifest) -> Result<(), Error> {
    let mut batch: Vec<Entry> = Vec::new();
    let mut bytes = 0;
    for entry in manifest.entries() {
        bytes += entry.name.len() + ENTRY_BYTES;
        batch.push(entry.clone());
        if bytes >= BATCH_BYTES {
            writer.send(&Message::Entries(std::mem::take(&mut batch)))?;
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        writer.send(&Message::Entries(batch))?;
    }
    Ok(())
}

/// Receives the manifest that a plan announced, and checks every entry as it comes.
///
/// # Errors
/// [`Error::Manifest`], [`Error::Aborted`], [`Error::Unexpected`], and those of [`Reader::recv`].
pub fn recv_manifest(reader: &mut Reader, plan: &TransferPlan) -> Result<Manifest, Error> {
    if plan.entries > MAX_ENTRIES {
        return Err(ManifestError::TooMany.into());
    }
    let mut builder = ManifestBuilder::default();
    while builder.entries() < plan.entries {
        let batch = reader.recv_expected("manifest entries", |message| match message {
            Message::Entries(entries) if !entries.is_empty() => Ok(entries),
            other => Err(other),
        })?;
        for entry in batch {
            builder.push(entry)?;
        }
    }
    as_planned("entries", builder.entries().into(), plan.entries.into())?;
    let manifest = builder.build()?;
    as_planned("bytes", manifest.stream_bytes(), plan.stream_bytes)?;
    Ok(manifest)
}

fn as_planned(what: &'static str, came: u64, want: u64) -> Result<(), ManifestError> {
    if came == want {
        return Ok(());
    }
    Err(ManifestError::NotAsPlanned { what, came, want })
}
