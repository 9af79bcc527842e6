//! What the sender says on the channel.

use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};
use std::thread;

use farwrite_session::{Error as SessionError, Message, Reader};

use super::Event;
use super::disk::Job;
use crate::Error;
use crate::error::of_thread;
use crate::pulse::PeerPulse;

/// Reads the channel in a thread of its own, until it ends.
pub(super) fn start(
    reader: Reader,
    jobs: SyncSender<Job>,
    events: Sender<Event>,
    peer: Arc<PeerPulse>,
) -> Result<(), Error> {
    let work = move || {
        if let Err(error) = listen(reader, &jobs, &peer) {
            // The other half is gone when the transfer is over.
            let _ = events.send(Event::Ended(Error::of_session("receiving", &error)));
        }
    };
    thread::Builder::new()
        .name("listener".into())
        .spawn(work)
        .map(drop)
        .map_err(|error| of_thread(&error))
}

/// Hands on what concerns the files. Ends without an error when the disk's thread has ended.
fn listen(
    mut reader: Reader,
    jobs: &SyncSender<Job>,
    peer: &PeerPulse,
) -> Result<(), SessionError> {
    reader.set_timeout(None);
    let mut is_over = false;
    loop {
        let message = reader.recv()?;
        peer.add_message();
        let job = match message {
            Message::Progress(progress) => {
                peer.set(progress);
                continue;
            }
            Message::FileHash { index, hash } if !is_over => Job::Hash { index, hash },
            Message::FileAbandoned {
                index,
                sent_bytes,
                reason,
            } if !is_over => Job::Abandoned {
                index,
                sent_bytes,
                reason,
            },
            Message::StreamEnd { stream_bytes } if !is_over => {
                is_over = true;
                Job::StreamEnd { stream_bytes }
            }
            other => return Err(other.unexpected("a word about files")),
        };
        let queued = match jobs.try_send(job) {
            Ok(()) => true,
            Err(TrySendError::Full(job)) => peer.while_held_up(|| jobs.send(job).is_ok()),
            Err(TrySendError::Disconnected(_)) => false,
        };
        if !queued {
            return Ok(());
        }
    }
}
