//! What the receiver says on the channel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use farwrite_session::files::{Kind, Manifest};
use farwrite_session::{Message, Reader, Text};

use crate::exit::{Exit, Failure};
use crate::transfer::failure::sort;
use crate::transfer::report::FailedFile;

/// What the receiver said of the files.
#[derive(Debug)]
pub(super) struct Verdicts {
    manifest: Arc<Manifest>,
    /// Entries before this one were spoken of, or are directories.
    next: u32,
    verified_files: u32,
    failed: Vec<(u32, Text)>,
}

impl Verdicts {
    pub(super) fn new(manifest: Arc<Manifest>) -> Self {
        Self {
            manifest,
            next: 0,
            verified_files: 0,
            failed: Vec::new(),
        }
    }

    /// Takes a verdict. Files come in their order, each once, which bounds what a peer can make
    /// this end keep.
    fn take(&mut self, index: u32, failure: Option<Text>) -> Result<(), Failure> {
        if self.due() != Some(index) {
            let due = self.due().map_or("none".into(), |due| due.to_string());
            let what = format!("the receiver spoke of file {index}, but {due} is due");
            return Err(Failure::new(Exit::Other, what));
        }
        self.next = index + 1;
        match failure {
            None => self.verified_files += 1,
            Some(reason) => self.failed.push((index, reason)),
        }
        Ok(())
    }

    /// The file that the next verdict is for.
    fn due(&self) -> Option<u32> {
        let entries = (self.next..).map_while(|index| {
            let entry = self.manifest.entries().get(usize::try_from(index).ok()?)?;
            Some((index, entry.kind))
        });
        let mut files = entries.filter(|(_, kind)| matches!(kind, Kind::File { .. }));
        files.next().map(|(index, _)| index)
    }

    fn check_all_told(&self) -> Result<(), Failure> {
        match self.due() {
            None => Ok(()),
            Some(index) => Err(Failure::new(
                Exit::Other,
                format!("the receiver ended without a word about file {index}"),
            )),
        }
    }

    /// How many files arrived, and which did not; `abandoned` are those that could not be read here.
    pub(super) fn judge(self, abandoned: &[u32]) -> (u32, Vec<FailedFile>) {
        let failed = self.failed.into_iter().map(|(index, reason)| {
            let exit = match abandoned.binary_search(&index) {
                Ok(_) => Exit::Files,
                Err(_) => Exit::Corrupt,
            };
            FailedFile::new(&self.manifest, index, reason, exit)
        });
        (self.verified_files, failed.collect())
    }
}

/// How many messages have come, for whoever wants to know that the receiver is there.
pub(super) type Words = Arc<AtomicU64>;

/// What ends the listening: all verdicts, or why there are not.
pub(super) type Heard = Result<Verdicts, Failure>;

/// Reads the channel in a thread of its own.
pub(super) struct Listener {
    reader: Reader,
    verdicts: Verdicts,
}

impl Listener {
    pub(super) fn new(reader: Reader, verdicts: Verdicts) -> Self {
        Self { reader, verdicts }
    }

    /// Listens until the channel ends or the receiver is done.
    pub(super) fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
    ) -> (Words, Receiver<Heard>) {
        let (tell, events): (Sender<Heard>, _) = channel();
        let words = Words::default();
        let count = Arc::clone(&words);
        scope.spawn(move || {
            // Nobody waits for it when the transfer failed before.
            let _ = tell.send(self.listen(&count));
        });
        (words, events)
    }

    fn listen(mut self, words: &AtomicU64) -> Heard {
        let failed = |error| sort("sending", &error);
        self.reader.set_timeout(None).map_err(failed)?;
        loop {
            let message = self.reader.recv().map_err(failed)?;
            words.fetch_add(1, Ordering::Relaxed);
            match message {
                Message::FileVerified { index } => self.verdicts.take(index, None)?,
                Message::FileFailed { index, reason } => self.verdicts.take(index, Some(reason))?,
                Message::Progress { .. } => {}
                Message::Done => {
                    self.verdicts.check_all_told()?;
                    return Ok(self.verdicts);
                }
                other => return Err(failed(other.unexpected("a word about files"))),
            }
        }
    }
}
