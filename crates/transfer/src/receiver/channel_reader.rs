//! Reads what the sender sends on the channel.

use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, TrySendError};

use farwrite_files::{FileCause, Message, due};

use super::Event;
use super::disk_writer::Job;
use crate::channel::{ChannelError, Reader};
use crate::cutover::MAX_CUTOVERS;
use crate::progress_counts::PeerCounts;
use crate::results::SharedResults;
use crate::threads::start_thread;
use crate::waking::Waking;
use crate::{Error, ErrorKind};

/// Reads the channel in its own thread, until the channel ends.
pub(super) fn start(
    reader: Reader,
    jobs: SyncSender<Job>,
    events: Waking<Sender<Event>>,
    (peer, told): (Arc<PeerCounts>, SharedResults),
) -> Result<(), Error> {
    let work = move || {
        let mut is_closed = false;
        let listened = listen(reader, &jobs, &events, (&peer, &told), &mut is_closed);
        if let Err(error) = listened {
            // The other half no longer exists after the transfer has ended.
            let _ = events.send(Event::Ended { error, is_closed });
        }
    };
    start_thread("channel-reader", work).map(drop)
}

/// Passes messages about files to the disk's thread, and cutovers to the endpoint's thread. Returns
/// without an error when the disk's thread has ended.
fn listen(
    mut reader: Reader,
    jobs: &SyncSender<Job>,
    events: &Waking<Sender<Event>>,
    (peer, told): (&PeerCounts, &SharedResults),
    is_closed: &mut bool,
) -> Result<(), Error> {
    let failed = |error: ChannelError| Error::of_channel("receiving", &error);
    reader.set_timeout(None);
    let mut is_over = false;
    let mut cutovers = 0;
    loop {
        let received = reader.recv();
        *is_closed = matches!(received, Err(ChannelError::Closed));
        let message = received.map_err(failed)?;
        peer.messages.add(1);
        let job = match message {
            Message::Progress(progress) => {
                peer.set_progress(progress);
                continue;
            }
            Message::Warnings(warnings) if !is_over => {
                told.hear_warnings("at the sender", &warnings);
                continue;
            }
            Message::Missing(missing) if !is_over => {
                told.hear_missing(FileCause::Unreadable, missing);
                continue;
            }
            Message::FileHash { .. }
            | Message::FileSame { .. }
            | Message::FileAbandoned { .. }
            | Message::BlocksCompared { .. }
                if !is_over =>
            {
                Job::Report(message)
            }
            Message::StreamEnd { stream_bytes } if !is_over => {
                is_over = true;
                Job::StreamEnd { stream_bytes }
            }
            // The queue of events is unbounded, so the number of cutovers needs a limit.
            Message::Cutover(_) if cutovers >= MAX_CUTOVERS => {
                let what = format!(
                    "the sender cuts over more than {MAX_CUTOVERS} times; send again with a smaller \
                     --mtu"
                );
                return Err(Error::new(ErrorKind::Mismatch, what));
            }
            Message::Cutover(cutover) => {
                cutovers += 1;
                let _ = events.send(Event::Cutover(cutover));
                continue;
            }
            other => {
                let error = other.unexpected(due::ABOUT_FILES);
                return Err(Error::of_message("receiving", &error));
            }
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
