//! Reads what this end has of interrupted files, and tells the sender the hashes (P8.8).

use std::sync::Arc;

use farwrite_files::PrefixReader;

use crate::Error;
use crate::channel_writer::Outbox;
use crate::progress_counts::OwnCounts;
use crate::threads::start_thread;

/// Reads in its own thread, until all is read or the transfer has ended.
pub(super) fn start(
    mut reader: PrefixReader,
    outbox: Outbox,
    heartbeat: Arc<OwnCounts>,
) -> Result<(), Error> {
    let work = move || {
        while let Some(message) = reader.read() {
            heartbeat.compared.add(PrefixReader::READ_BYTES);
            if outbox.send(message).is_err() {
                return;
            }
        }
    };
    start_thread("prefix-reader", work).map(drop)
}
