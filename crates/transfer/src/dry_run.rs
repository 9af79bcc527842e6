//! A dry run: what a transfer would send, and what the receiver would remove (P8.9). Only the channel is used.

use std::io;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farwrite_files::{
    Compare, Delete, Hello, Manifest, Message, PathBound, PathList, Present, Preview, due,
};
use farwrite_keys::Text;

use crate::channel::{Channel, Reader};
use crate::channel_writer::{ChannelWriter, Outbox};
use crate::progress_counts::OwnCounts;
use crate::receiver::{PRESENT_BATCH, read_offer};
use crate::sender::{REMOVES_NOTHING, check_delete, plan, send_offer};
use crate::setup::{Setup, hello, unexpected};
use crate::{
    Client, Error, ErrorKind, ReceiveSettings, SchemeSetting, SendSettings, TransferHooks,
};

/// A receiver that sends more warnings than this is not heard.
const MOST_WARNINGS: usize = 100;

/// Bytes of paths in one message. This is well below the limit of a message, since the last path may exceed it.
const BATCH_BYTES: usize = 64 << 10;

/// What a transfer would do.
#[derive(Debug)]
pub struct DryRun {
    /// What the sender has.
    pub manifest: Arc<Manifest>,
    /// Numbers of the files and links that the receiver has already, in ascending order; `None` if they were not compared by
    /// length and time.
    pub unchanged: Option<Vec<u32>>,
    /// What would be removed, if the sender wants that.
    pub removal: Option<Removal>,
    /// What the user should know about the answer.
    pub warnings: Vec<Text>,
}

/// What a transfer would remove.
#[derive(Debug)]
pub struct Removal {
    /// Files and directories that are only at the receiver.
    pub count: u32,
    /// Their paths below the receiver's directory, as many as fit into a list. Empty at a receiver that has told
    /// them to the sender.
    pub paths: PathList,
    /// If there are more than this, none would be removed.
    pub max: Option<u32>,
}

impl Removal {
    /// The error with which a transfer would end, because it would remove more than is allowed.
    #[must_use]
    pub fn excess(&self) -> Option<String> {
        let most = self.max.filter(|most| self.count > *most)?;
        Some(format!(
            "{} files and directories are only at the receiver, at most {most} may be removed (--max-delete): a \
             transfer would send the files, remove nothing, and fail",
            self.count
        ))
    }
}

/// Asks a receiver what a transfer of `manifest` with these settings would do. Nothing is sent or removed.
///
/// # Errors
/// [`ErrorKind::Mismatch`] if the receiver does not allow what the user wants; errors with which a transfer would end before its first byte; those of the channel. The peer is informed.
pub fn dry_run(
    channel: Channel,
    manifest: &Arc<Manifest>,
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<DryRun, Error> {
    over(channel, settings.timeout, |reader, outbox, _| {
        let setup = Setup::new(reader, hooks, settings.timeout);
        ask(setup, outbox, manifest, settings, hooks)
    })
}

/// Answers the dry run of a sender, which has already sent its hello. Nothing in `directory` changes. If the user of
/// this end wants the dry run (`is_own`), this end keeps the paths, and does not tell them to the sender.
///
/// # Errors
/// As [`dry_run`].
pub fn answer_dry_run(
    sender: Client,
    directory: &Path,
    settings: &ReceiveSettings,
    is_own: bool,
    hooks: &TransferHooks<'_>,
) -> Result<DryRun, Error> {
    over(
        sender.into_channel(),
        settings.timeout,
        |reader, outbox, heartbeat| {
            let answer = Answer {
                outbox,
                heartbeat,
                settings,
                is_own,
                hooks,
            };
            answer.give(Setup::new(reader, hooks, settings.timeout), directory)
        },
    )
}

/// Runs one end of the channel.
fn over<T>(
    channel: Channel,
    timeout: Duration,
    work: impl FnOnce(&mut Reader, &Outbox, &Arc<OwnCounts>) -> Result<T, Error>,
) -> Result<T, Error> {
    let heartbeat = Arc::<OwnCounts>::default();
    let (channel_writer, mut reader, outbox) = ChannelWriter::start(channel, &heartbeat, timeout)?;
    let result = work(&mut reader, &outbox, &heartbeat);
    channel_writer.end(&result);
    result
}

fn ask(
    mut setup: Setup<'_>,
    outbox: &Outbox,
    manifest: &Arc<Manifest>,
    settings: &SendSettings,
    hooks: &TransferHooks<'_>,
) -> Result<DryRun, Error> {
    let cancel = hooks.cancel;
    outbox.send_or_cancel(hello(Hello::DRY_RUNS), cancel)?;
    let receiver = setup.hello()?;
    check_delete(settings.delete, &receiver)?;
    let plan = plan(SchemeSetting::Auto, 0, manifest);
    // Which bytes are equal is not known before both ends have read them.
    let compare = match settings.compare {
        Compare::Time => Compare::Time,
        Compare::Nothing | Compare::Hash => Compare::Nothing,
    };
    send_offer(outbox, plan, manifest, (compare, settings.delete), cancel)?;
    outbox.send_or_cancel(Message::StreamEnd { stream_bytes: 0 }, cancel)?;
    let mut run = DryRun {
        manifest: Arc::clone(manifest),
        unchanged: (compare == Compare::Time).then(Vec::new),
        removal: settings.delete.map(|order| Removal {
            count: 0,
            paths: PathList::default(),
            max: order.max,
        }),
        warnings: Vec::new(),
    };
    loop {
        match setup.message(settings.timeout)? {
            Message::Done => return Ok(run),
            message => run.hear(message)?,
        }
    }
}

impl DryRun {
    /// Takes a part of the receiver's answer.
    fn hear(&mut self, message: Message) -> Result<(), Error> {
        let refused = |what: String| Err(Error::new(ErrorKind::Other, what));
        match (message, &mut self.unchanged, &mut self.removal) {
            (Message::Present(present), Some(unchanged), _) if !present.is_empty() => {
                for Present { entry, .. } in present {
                    let kind = self.manifest.entry(entry).map(|entry| entry.kind);
                    let is_there = kind.is_some_and(|kind| !kind.is_directory());
                    if !is_there || unchanged.last().is_some_and(|last| *last >= entry) {
                        return refused(format!(
                            "the receiver says that it has entry {entry}, out of order"
                        ));
                    }
                    unchanged.push(entry);
                }
            }
            (Message::Extra(paths), _, Some(removal)) if !paths.is_empty() => {
                if !paths.iter().all(|path| removal.paths.push(path)) {
                    let what = "the receiver lists a path that none can have, or too many of them";
                    return refused(what.into());
                }
            }
            (Message::Deleted { files }, _, Some(removal)) => removal.count = files,
            (Message::Warnings(warnings), ..) if self.warnings.len() < MOST_WARNINGS => {
                self.warnings.extend(warnings);
            }
            (other, ..) => return Err(unexpected(other, due::DONE)),
        }
        Ok(())
    }
}

/// What the answer of a receiver needs.
struct Answer<'a> {
    outbox: &'a Outbox,
    heartbeat: &'a Arc<OwnCounts>,
    settings: &'a ReceiveSettings,
    is_own: bool,
    hooks: &'a TransferHooks<'a>,
}

impl Answer<'_> {
    fn give(&self, mut setup: Setup<'_>, directory: &Path) -> Result<DryRun, Error> {
        let (settings, cancel) = (self.settings, self.hooks.cancel);
        let capabilities = settings.capabilities();
        self.outbox.send_or_cancel(hello(capabilities), cancel)?;
        let plan = setup.plan()?;
        let mut list = settings.memory(self.hooks).join_lists();
        let offer = read_offer(&mut setup, &plan, settings, &mut list)?;
        if !matches!(offer.next, Message::StreamEnd { stream_bytes: 0 }) {
            return Err(unexpected(offer.next, due::STREAM_END));
        }
        let (manifest, delete) = (Arc::new(offer.manifest), offer.delete);
        if delete.is_some() && !settings.policy.delete {
            return Err(Error::new(ErrorKind::Mismatch, REMOVES_NOTHING));
        }
        let compare = offer.compare;
        let (directory, looked_for) = (directory.to_path_buf(), Arc::clone(&manifest));
        let look = move || Preview::look(&directory, looked_for, compare);
        // This can take long on a slow disk.
        let preview = setup.run(self.heartbeat, look)?;
        let preview = preview.map_err(|error| Error::of_sink(&error))?;
        let unchanged = (compare == Compare::Time)
            .then(|| preview.present().iter().map(|it| it.entry).collect());
        if !self.is_own {
            for present in preview.present().chunks(PRESENT_BATCH) {
                let present = Message::Present(present.to_vec());
                self.outbox.send_or_cancel(present, cancel)?;
            }
        }
        let found = delete.map(|order| self.find(&mut setup, preview, order));
        let (removal, warnings) = found.transpose()?.unzip();
        let warnings = warnings.unwrap_or_default();
        if !self.is_own && !warnings.is_empty() {
            let told = Message::Warnings(warnings.clone());
            self.outbox.send_or_cancel(told, cancel)?;
        }
        self.outbox.send_or_cancel(Message::Done, cancel)?;
        // The sender closes the channel when it has the answer. A sender that does not is given up.
        let _ = setup.message(settings.timeout);
        Ok(DryRun {
            manifest,
            unchanged,
            removal,
            warnings,
        })
    }

    /// Finds what would be removed, and tells the sender or keeps it.
    fn find(
        &self,
        setup: &mut Setup<'_>,
        mut preview: Preview,
        order: Delete,
    ) -> Result<(Removal, Vec<Text>), Error> {
        let (outbox, cancel) = (self.outbox.clone(), self.hooks.cancel.clone());
        let is_own = self.is_own;
        let find = move || {
            // Why the sender was not told, which is no fault of a file.
            let mut unsent = None;
            let mut paths = PathList::default();
            let mut batch = Batch::default();
            let mut send = |paths| {
                let sent = outbox.send_or_cancel(Message::Extra(paths), &cancel);
                sent.map_err(|error| {
                    unsent = Some(error);
                    io::Error::other("not told")
                })
            };
            let count = preview.tell_extra(order, &mut |path| {
                match is_own {
                    true => drop(paths.push(path)),
                    false => batch.add(path).map_or(Ok(()), &mut send)?,
                }
                Ok(())
            });
            let warnings = iter::from_fn(|| preview.poll_warning()).map(Text::new);
            let found = count.map(|count| (count, paths, batch.paths, warnings.collect()));
            (found, unsent)
        };
        let (found, unsent) = setup.run(self.heartbeat, find)?;
        if let Some(error) = unsent {
            return Err(error);
        }
        let (count, paths, last, warnings) = found.map_err(|error| Error::of_sink(&error))?;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let cancel = self.hooks.cancel;
        if !last.is_empty() {
            self.outbox.send_or_cancel(Message::Extra(last), cancel)?;
        }
        if !is_own {
            let deleted = Message::Deleted { files: count };
            self.outbox.send_or_cancel(deleted, cancel)?;
        }
        let removal = Removal {
            count,
            paths,
            max: order.max,
        };
        Ok((removal, warnings))
    }
}

/// Paths for one message.
#[derive(Default)]
struct Batch {
    bound: PathBound,
    paths: Vec<Vec<u8>>,
    bytes: usize,
}

impl Batch {
    /// Adds a path, unless the sender would refuse it. Returns what is to be sent.
    fn add(&mut self, path: &[u8]) -> Option<Vec<Vec<u8>>> {
        if !self.bound.admits(path) {
            return None;
        }
        self.bytes += path.len() + 2;
        self.paths.push(path.to_vec());
        let is_full = self.bytes >= BATCH_BYTES;
        is_full.then(|| {
            self.bytes = 0;
            std::mem::take(&mut self.paths)
        })
    }
}

#[cfg(test)]
mod tests {
    use farwrite_files::{Entry, Kind, ManifestBuilder, Time};

    use super::*;

    fn run() -> DryRun {
        let mut builder = ManifestBuilder::default();
        for (name, kind) in [
            ("directory", Kind::Directory),
            (
                "file",
                Kind::File {
                    bytes: 1,
                    sparse: false,
                },
            ),
        ] {
            let entry = Entry {
                parent: None,
                name: name.into(),
                kind,
                mode: 0,
                modified: Time::default(),
            };
            builder.push(&entry).expect("keeps the rules");
        }
        DryRun {
            manifest: Arc::new(builder.build().expect("two names")),
            unchanged: Some(Vec::new()),
            removal: Some(Removal {
                count: 0,
                paths: PathList::default(),
                max: Some(2),
            }),
            warnings: Vec::new(),
        }
    }

    #[test]
    fn an_answer_that_no_honest_receiver_gives_is_refused() {
        let present = |entry| {
            let hash = None;
            Message::Present(vec![Present { entry, hash }])
        };
        let extra = |path: &[u8]| Message::Extra(vec![path.to_vec()]);
        let wrong = [
            present(0),
            present(2),
            extra(b""),
            extra(b"a\0b"),
            Message::Extra(Vec::new()),
            Message::Hello(Hello {
                software: Text::default(),
                capabilities: 0,
            }),
        ];
        for message in wrong {
            let text = format!("{message:?}");
            run().hear(message).expect_err(&text);
        }
        let mut run = run();
        for message in [present(1), extra(b"x"), Message::Deleted { files: 3 }] {
            run.hear(message).expect("honest");
        }
        run.hear(present(1)).expect_err("named before");
        let removal = run.removal.take().expect("wanted");
        assert!(
            removal
                .excess()
                .is_some_and(|what| what.contains("at most 2"))
        );
        run.hear(extra(b"x")).expect_err("nobody wants removals");
    }
}
