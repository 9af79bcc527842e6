//! What the sender says on the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender};
use std::thread::Scope;

use farwrite_session::{Error, Message, Reader};

use super::Event;
use super::disk::Job;
use crate::transfer::failure::sort;

/// Reads the channel in a thread of its own, until it ends. Returns how many messages have come, for
/// whoever wants to know that the sender is there.
pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    reader: Reader,
    jobs: SyncSender<Job>,
    tell: Sender<Event>,
) -> Arc<AtomicU64> {
    let words = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&words);
    scope.spawn(move || {
        if let Err(error) = listen(reader, &jobs, &count) {
            // Nobody waits for it when the transfer is over.
            let _ = tell.send(Event::Ended(sort("receiving", &error)));
        }
    });
    words
}

/// Hands on what concerns the files. Ends without an error when the disk's thread has ended.
fn listen(mut reader: Reader, jobs: &SyncSender<Job>, words: &AtomicU64) -> Result<(), Error> {
    reader.set_timeout(None)?;
    let mut done = false;
    loop {
        let job = match reader.recv()? {
            Message::FileHash { index, hash } if !done => Job::Hash { index, hash },
            Message::FileAbandoned { index, reason } if !done => Job::Abandoned { index, reason },
            Message::Done if !done => {
                done = true;
                Job::Done
            }
            other => return Err(other.unexpected("a word about files")),
        };
        words.fetch_add(1, Ordering::Relaxed);
        if jobs.send(job).is_err() {
            return Ok(());
        }
    }
}
