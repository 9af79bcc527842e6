//! Reads what the receiver sends on the channel.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use farwrite::fabric::contract::Waker;
use farwrite_files::{CutoverAccepted, FileCause, Manifest, Message, PrefixHashes, due};
use farwrite_keys::Text;

use crate::channel::{ChannelError, Reader};
use crate::progress_counts::{OwnCounts, PeerCounts};
use crate::results::{FileResults, SharedResults};
use crate::threads::start_thread;
use crate::waking::Waking;
use crate::{Error, ErrorKind};

/// The receiver's reports on the files.
pub(super) struct Verdicts {
    pub(super) manifest: Arc<Manifest>,
    /// The next verdict is for the first file from this entry on.
    pub(super) next: u32,
    pub(super) shared_results: SharedResults,
    pub(super) prefix_hashes: PrefixHashes,
    pub(super) heartbeat: Arc<OwnCounts>,
}

impl Drop for Verdicts {
    /// The thread that waits for hashes of the receiver stops waiting.
    fn drop(&mut self) {
        self.prefix_hashes.close();
    }
}

impl Verdicts {
    /// Processes a verdict. Verdicts come in the order of the files, one for each, which limits
    /// what a peer can make this end store.
    fn take(&mut self, index: u32, failure: Option<(FileCause, Text)>) -> Result<(), Error> {
        self.check_turn(index)?;
        let mut results = self.shared_results.lock();
        results.add(&self.manifest, index, failure, None);
        Ok(())
    }

    /// Processes the verdict on a file that the receiver had already.
    fn take_kept(&mut self, index: u32) -> Result<(), Error> {
        self.check_turn(index)?;
        self.shared_results.keep(&self.manifest, index);
        Ok(())
    }

    fn check_turn(&mut self, index: u32) -> Result<(), Error> {
        let due = self.due();
        if due != Some(index) {
            let due = due.map_or("none".into(), |due| due.to_string());
            let what = format!("the receiver reported file {index}, but {due} is due");
            return Err(Error::new(ErrorKind::Other, what));
        }
        self.next = index + 1;
        self.heartbeat.files.add(1);
        Ok(())
    }

    /// The file that the next verdict is for.
    fn due(&self) -> Option<u32> {
        self.manifest.next_verdict(self.next)
    }

    /// The result of all files.
    fn finish(self) -> Result<FileResults, Error> {
        match self.due() {
            None => Ok(self.shared_results.take()),
            Some(index) => Err(Error::new(
                ErrorKind::Other,
                format!("the receiver ended without a report on file {index}"),
            )),
        }
    }
}

/// Events of the receiver for the endpoint's thread.
pub(super) enum ChannelEvent {
    /// The receiver continues over another queue pair.
    CutoverAccepted(CutoverAccepted),
    /// Every file's verdict, or why there is none. No other event follows.
    Over(Result<FileResults, Error>),
}

/// Reads the channel, in its own thread, until the channel ends or the receiver has finished.
pub(super) fn start(
    reader: Reader,
    verdicts: Verdicts,
    peer: Arc<PeerCounts>,
    waker: &Waker,
) -> Result<Receiver<ChannelEvent>, Error> {
    // The queue holds one event. If a receiver sends answers that nobody requested, this thread
    // waits and does not store them all.
    let (tell, heard) = sync_channel(1);
    let tell = Waking::new(tell, waker);
    let work = move || {
        let over = listen(reader, verdicts, &tell, &peer);
        // The other half no longer exists when the transfer has failed.
        let _ = tell.send(ChannelEvent::Over(over));
    };
    start_thread("channel-reader", work)?;
    Ok(heard)
}

fn listen(
    mut reader: Reader,
    mut verdicts: Verdicts,
    tell: &Waking<SyncSender<ChannelEvent>>,
    peer: &PeerCounts,
) -> Result<FileResults, Error> {
    let failed = |error: ChannelError| Error::of_channel("sending", &error);
    reader.set_timeout(None);
    loop {
        let message = reader.recv().map_err(failed)?;
        peer.messages.add(1);
        let results = &verdicts.shared_results;
        match message {
            Message::FileVerified { index } => verdicts.take(index, None)?,
            Message::FileKept { index } => verdicts.take_kept(index)?,
            Message::FileFailed {
                index,
                cause,
                reason,
            } => verdicts.take(index, Some((cause, reason)))?,
            Message::Progress(progress) => peer.set_progress(progress),
            Message::CutoverAccepted(accepted) => {
                let _ = tell.send(ChannelEvent::CutoverAccepted(accepted));
            }
            Message::BlockHashes {
                index,
                first,
                hashes,
            } => {
                let added = verdicts.prefix_hashes.add(index, first, &hashes);
                added.map_err(|error| Error::new(ErrorKind::Other, error.to_string()))?;
            }
            Message::Deleted { files } => results.lock().deleted_files = files,
            Message::Warnings(warnings) => results.hear_warnings("at the receiver", &warnings),
            Message::Missing(missing) => results.hear_missing(FileCause::Unwritable, missing),
            Message::Done => return verdicts.finish(),
            other => {
                let error = other.unexpected(due::ABOUT_FILES);
                return Err(Error::of_message("receiving", &error));
            }
        }
    }
}
