//! The sender's end: converts files to the stream and its hashes (P8.2).

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farwrite_keys::Text;

use super::file_stream::{FileStream, Piece};
use super::listed_files::{ListedFiles, ReadError};
use super::manifest::FileEntry;
use super::not_sent::NotSent;
use super::partial::MAX_PARTIALS;
use super::prefix::{PrefixHashes, unsent_bytes};
use super::scan::scan;
use super::{
    CommitGate, Compare, Delete, Kind, Manifest, Message, Partial, Present, Run, ScanError,
    ScanOptions, Unreadable,
};

/// Files that may have ended and wait to be polled. A million files without bytes take no memory.
const MAX_ENDED: usize = 1024;

/// Reads the files of a manifest as one stream, and hashes each.
///
/// The source abandons a file that changes or that it can no longer read: [`Source::poll_file`]
/// returns how many of its bytes are in the stream, and the next file follows directly. So the
/// stream may have fewer bytes than the manifest says. Of a file that grows, such as a log, it reads
/// the bytes that were there when it was listed.
///
/// Each directory is opened from its parent, and a file must be the one that was listed (same
/// device and inode). A file that replaces it later is not sent.
#[derive(Debug)]
pub struct Source {
    /// How it was listed.
    options: ScanOptions,
    manifest: Arc<Manifest>,
    listed: ListedFiles,
    skipped: Vec<PathBuf>,
    unreadable: Vec<Unreadable>,
    dropped: NotSent,
    /// Files that the receiver has already, in ascending order.
    present: Vec<Present>,
    /// Files whose first bytes the receiver has, in ascending order.
    partials: Vec<Partial>,
    prefix_hashes: PrefixHashes,
    /// What was compared and is not polled yet.
    compared: Option<ComparedPrefix>,
    /// The first file from this number on comes after the current one.
    next: u32,
    current: Option<Reading>,
    ended: VecDeque<FileRead>,
}

/// The file that is being read; it has bytes left.
#[derive(Debug)]
struct Reading {
    index: u32,
    file: File,
    /// In the stream.
    bytes: u64,
    read_bytes: u64,
    stream: FileStream,
}

/// The comparison of what the receiver has of a file has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedPrefix {
    /// Number of the file in the manifest.
    pub index: u32,
    /// The blocks that differ. They come next in the stream.
    pub runs: Vec<Run>,
    /// Bytes of the stream that need not be sent.
    pub resumed_bytes: u64,
}

/// How the reading of a file ended.
#[derive(Debug)]
pub struct FileRead {
    /// Number of the file in the manifest.
    pub index: u32,
    /// How many of its bytes are in the stream: all, or fewer if it was abandoned.
    pub sent_bytes: u64,
    /// BLAKE3 of its bytes, or why they are useless.
    pub result: Result<[u8; 32], ReadError>,
    /// The file of the receiver is the same, and nothing of it is in the stream.
    pub is_same: bool,
}

impl FileRead {
    /// The message for the receiver.
    #[must_use]
    pub fn message(&self) -> Message {
        let index = self.index;
        match &self.result {
            Ok(_) if self.is_same => Message::FileSame { index },
            Ok(hash) => Message::FileHash { index, hash: *hash },
            Err(error) => Message::FileAbandoned {
                index,
                sent_bytes: self.sent_bytes,
                reason: Text::new(error),
            },
        }
    }
}

impl Source {
    /// Lists files, links and directory trees, each under the last name of its path, as `cp -r` and `scp
    /// -r` do: `a/b` and `a/b/` arrive as `b`, and `a/b/.` as the contents of `b`. A path that is a
    /// symbolic link stands for its target. Links within trees are sent as links. Pipes, sockets and
    /// devices within trees are [`Special`](super::Special).
    ///
    /// # Errors
    /// A [`ScanError`] that names the path.
    pub fn scan(paths: &[PathBuf], options: &ScanOptions) -> Result<Self, ScanError> {
        let scan = scan(paths, options)?;
        let manifest = Arc::new(scan.manifest);
        Ok(Self {
            options: options.clone(),
            listed: ListedFiles::new(Arc::clone(&manifest), scan.roots, scan.ids),
            manifest,
            skipped: scan.skipped,
            unreadable: scan.unreadable,
            dropped: scan.dropped,
            present: Vec::new(),
            partials: Vec::new(),
            prefix_hashes: PrefixHashes::default(),
            compared: None,
            next: 0,
            current: None,
            ended: VecDeque::new(),
        })
    }

    /// Processes the receiver's list of files that it has already. They come in ascending order.
    ///
    /// # Errors
    /// The number of the first entry that is no file, or not in order.
    pub fn add_present(&mut self, present: Vec<Present>, compare: Compare) -> Result<(), u32> {
        let mut before = self.present.last().map(|it| it.entry);
        for it in &present {
            let entry = self.manifest.entry(it.entry).map(|entry| entry.kind);
            let is_file = matches!(entry, Some(Kind::File { .. }));
            let fits = it.hash.is_some() == (compare == Compare::Hash);
            if !is_file || !fits || before.is_some_and(|before| before >= it.entry) {
                return Err(it.entry);
            }
            before = Some(it.entry);
        }
        self.present.extend(present);
        Ok(())
    }

    /// Processes the receiver's list of files whose first bytes it has. They come in ascending order.
    ///
    /// # Errors
    /// The number of the first entry that is no file, not in order, of another length than whole blocks, or one
    /// of too many.
    pub fn add_partials(&mut self, partials: Vec<Partial>) -> Result<(), u32> {
        for it in partials {
            let is_next = self
                .partials
                .last()
                .is_none_or(|last| last.entry < it.entry);
            if !is_next || !it.fits(&self.manifest) || self.partials.len() == MAX_PARTIALS {
                return Err(it.entry);
            }
            self.prefix_hashes.expect(&it);
            self.partials.push(it);
        }
        Ok(())
    }

    /// The files whose first bytes the receiver has.
    #[must_use]
    pub fn partials(&self) -> &[Partial] {
        &self.partials
    }

    /// What compares the first bytes of files with those of the receiver.
    #[must_use]
    pub fn prefix_hashes(&self) -> &PrefixHashes {
        &self.prefix_hashes
    }

    /// Whether the receiver has files already, so that there may be nothing to send.
    #[must_use]
    pub fn has_present(&self) -> bool {
        !self.present.is_empty() || !self.partials.is_empty()
    }

    /// Bytes of the stream that are not sent, as far as this is known before the files are read.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        unsent_bytes(&self.present, &self.partials, &self.manifest)
    }

    /// Returns what the receiver has to remove so that it has no more than this; `None` if something was left
    /// out, which could then be lost.
    #[must_use]
    pub fn delete(&self, max: Option<u32>) -> Option<Delete> {
        let is_all = self.unreadable.is_empty() && self.skipped.is_empty();
        let top = self.listed.have_contents();
        (is_all && self.options.filter.is_empty()).then_some(Delete { max, top })
    }

    /// Whether owners are sent.
    #[must_use]
    pub fn sends_owners(&self) -> bool {
        self.options.owners
    }

    /// Returns the manifest to send.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Returns the paths that [`Special::Skip`](super::Special::Skip) left out.
    #[must_use]
    pub fn skipped(&self) -> &[PathBuf] {
        &self.skipped
    }

    /// Returns what was left out of the manifest because it could not be listed.
    #[must_use]
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Returns warnings about what was not sent: extended attributes, access control lists, hard
    /// links, and bytes that were appended to files. Complete at the end of the stream.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.dropped.warnings().collect()
    }

    /// Where an entry is read from; empty for a number that no entry has.
    #[must_use]
    pub fn path(&self, index: u32) -> PathBuf {
        self.listed.path(index)
    }

    /// Returns whether all bytes were read, and the end of all files was polled.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_last = self.current.is_none() && self.ended.is_empty();
        is_last && self.manifest.next_verdict(self.next).is_none()
    }

    /// Fills `out` with the next bytes of the stream, and returns how many. There can be fewer than fit, also
    /// none, before the end ([`Source::is_over`]). [`Source::poll_file`] then returns every file that
    /// ended in this call, and after it [`Source::poll_compared`] the comparison that ended.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while filled < out.len() && self.ended.len() < MAX_ENDED && self.compared.is_none() {
            if self.current.is_none() && !self.open_next() {
                break;
            }
            let Some(mut reading) = self.current.take() else {
                continue;
            };
            if reading.read_bytes < reading.bytes {
                let read = reading.read(&mut out[filled..]);
                filled += read.as_ref().unwrap_or(&0);
                match read {
                    Ok(1..) if reading.read_bytes < reading.bytes => {
                        self.current = Some(reading);
                        continue;
                    }
                    Ok(1..) => {}
                    Ok(0) => {
                        let error = self.cut_short(&reading);
                        self.end(reading.index, reading.read_bytes, Err(error));
                        continue;
                    }
                    Err(source) => {
                        let error = self.listed.failed(reading.index, source);
                        self.end(reading.index, reading.read_bytes, Err(error));
                        continue;
                    }
                }
            }
            if reading.stream.is_known() {
                let (index, sent_bytes) = (reading.index, reading.read_bytes);
                let result = self.ended(reading);
                self.end(index, sent_bytes, result);
            } else if !self.compare_prefix(reading) {
                break;
            }
        }
        filled
    }

    /// Whether the next bytes of the stream depend on hashes that are missing.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|it| it.read_bytes == it.bytes && !it.stream.is_known())
    }

    /// Waits for such a hash, up to `patience`. Returns whether the transfer goes on.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        self.prefix_hashes.wait(patience)
    }

    /// Returns the comparison that has ended, if one has. The blocks that differ are the next bytes of the
    /// stream.
    pub fn poll_compared(&mut self) -> Option<ComparedPrefix> {
        self.compared.take()
    }

    /// Goes on with a file of which only the first bytes are left to compare. Returns whether they are.
    fn compare_prefix(&mut self, mut reading: Reading) -> bool {
        let index = reading.index;
        match self.prefix_hashes.result(index) {
            None => {
                self.current = Some(reading);
                return false;
            }
            Some(Err(source)) => {
                let error = self.listed.failed(index, source);
                self.end(index, reading.read_bytes, Err(error));
            }
            Some(Ok((hashes, runs))) => {
                let data = self.manifest.data(index);
                let again: u64 = runs.iter().map(|run| run.stream_bytes(data)).sum();
                let bytes = self.manifest.stream_bytes_of(index);
                reading.stream.send_again(data, hashes, &runs);
                self.compared = Some(ComparedPrefix {
                    index,
                    runs,
                    resumed_bytes: bytes.saturating_sub(reading.bytes + again),
                });
                reading.bytes += again;
                self.current = Some(reading);
            }
        }
        true
    }

    /// Returns how the reading of the next file ended, if a file has ended. Files come in the order
    /// of the manifest.
    pub fn poll_file(&mut self) -> Option<FileRead> {
        self.ended.pop_front()
    }

    /// Opens the next file, or ends it if it has no bytes in the stream. Returns `false` if there is none.
    fn open_next(&mut self) -> bool {
        let manifest = Arc::clone(&self.manifest);
        let Some(file) = manifest.next_file(self.next) else {
            return false;
        };
        self.next = file.index + 1;
        let (result, is_same) = match self.same_or_link(file.index) {
            Some(ended) => ended,
            None => match self.open_file(&file) {
                Some(result) => (result, false),
                None => return true,
            },
        };
        self.ended.push_back(FileRead {
            index: file.index,
            sent_bytes: 0,
            result,
            is_same,
        });
        true
    }

    /// Ends a file that the receiver has already, or a link; `None` for any other file.
    fn same_or_link(&mut self, index: u32) -> Option<(Result<[u8; 32], ReadError>, bool)> {
        if let Ok(at) = self.present.binary_search_by_key(&index, |it| it.entry) {
            match self.present[at].hash {
                None => return Some((Ok([0; 32]), true)),
                Some(theirs) => match self.listed.hash(index) {
                    Ok(ours) if ours == theirs => return Some((Ok(ours), true)),
                    Ok(_) => {}
                    Err(error) => return Some((Err(error), false)),
                },
            }
        }
        self.listed.link(index).map(|result| (result, false))
    }

    /// Returns the end of the file if it has no bytes in the stream.
    fn open_file(&mut self, file: &FileEntry) -> Option<Result<[u8; 32], ReadError>> {
        let manifest = Arc::clone(&self.manifest);
        let opened = self.listed.open(file.index).and_then(|opened| {
            self.listed.check_unchanged(file.index, &opened)?;
            Ok(opened)
        });
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => return Some(Err(error)),
        };
        if !self.options.xattrs {
            self.dropped.look_at(&opened);
        }
        let at = self
            .partials
            .binary_search_by_key(&file.index, |it| it.entry);
        let partial = at.ok().map(|at| self.partials[at]);
        if partial.is_some() {
            match opened.try_clone() {
                Ok(opened) => self.prefix_hashes.start(file.index, opened),
                Err(source) => return Some(Err(self.listed.failed(file.index, source))),
            }
        }
        let before = partial.map_or(0, |partial| partial.bytes);
        let before_in_stream = partial.map_or(0, |partial| partial.stream_bytes(&manifest));
        let reading = Reading {
            index: file.index,
            file: opened,
            bytes: file.bytes.saturating_sub(before_in_stream),
            read_bytes: 0,
            stream: FileStream::new(manifest.data(file.index), file.length, before),
        };
        if file.bytes == 0 {
            return Some(self.ended(reading));
        }
        self.current = Some(reading);
        None
    }

    /// Returns how a file ended whose bytes were all read.
    fn ended(&mut self, mut reading: Reading) -> Result<[u8; 32], ReadError> {
        self.check_end(reading.index, &reading.file)?;
        let gate = CommitGate::default();
        let mut step = || reading.stream.step(&gate);
        // Only holes are left.
        while let Piece::Zeros(_) =
            step().map_err(|source| self.listed.failed(reading.index, source))?
        {}
        Ok(reading.stream.hash().into())
    }

    /// Ends a file that was read.
    fn end(&mut self, index: u32, sent_bytes: u64, result: Result<[u8; 32], ReadError>) {
        self.ended.push_back(FileRead {
            index,
            sent_bytes,
            result,
            is_same: false,
        });
    }

    /// Checks that a file is unchanged, or that bytes were only appended to it. A file that has
    /// more bytes than its metadata says fails: the files of `/proc` have a length of 0 there.
    fn check_end(&mut self, index: u32, file: &File) -> Result<(), ReadError> {
        let mut has_grown = self.listed.check_unchanged(index, file)?;
        if !has_grown {
            match read_some(file, &mut [0], self.listed.bytes(index)) {
                Ok(0) => return Ok(()),
                Ok(_) => has_grown = self.listed.check_unchanged(index, file)?,
                Err(source) => return Err(self.listed.failed(index, source)),
            }
        }
        let path = self.path(index);
        if has_grown {
            self.dropped.note_growth(&path);
            return Ok(());
        }
        Err(ReadError::Longer {
            path,
            bytes: self.listed.bytes(index),
        })
    }

    /// Returns why a file ended before its length: it has changed, or its listed length was never
    /// right.
    fn cut_short(&self, reading: &Reading) -> ReadError {
        let changed = self.listed.check_unchanged(reading.index, &reading.file);
        changed.err().unwrap_or_else(|| ReadError::Changed {
            path: self.path(reading.index),
            what: format!(
                "it ended after {} of its {} bytes",
                reading.stream.offset(),
                self.listed.bytes(reading.index)
            ),
        })
    }
}

impl Reading {
    /// Reads the next bytes of the stream, of which some are left; returns how many, 0 if the file has
    /// become shorter.
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let gate = CommitGate::default();
        let (offset, left) = loop {
            match self.stream.step(&gate)? {
                Piece::Data { offset, bytes } => break (offset, bytes),
                Piece::Zeros(_) => {}
                Piece::Unknown | Piece::End => return Ok(0),
            }
        };
        let room = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        let read = read_some(&self.file, &mut out[..room], offset)?;
        self.stream.advance(&out[..read]);
        self.read_bytes += u64::try_from(read).unwrap_or(u64::MAX);
        Ok(read)
    }
}

fn read_some(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(out, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
