//! A file that is being received, under a temporary name. A short file has no name until it is whole, where the file
//! system allows it: that saves changes of the directory, and the kernel removes it if the receiver is killed.
//!
//! The receiver holds an advisory lock on the file, so that another receiver can distinguish it from a
//! file that a killed receiver left behind.

use std::io;
use std::os::unix::fs::FileExt;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::fdatasync;
use rustix::io::retry_on_intr;

use super::directory::Directory;
use super::durable::sync_directory;
use super::file_hash::BlockHash;
use super::file_stream::{FileStream, Piece};
use super::in_use::{InUse, Wanted};
use super::interrupted::Interrupted;
use super::locked_file::LockedFile;
use super::part_name::{PartName, new_name_of};
use super::partial::{MIN_PARTIAL_BYTES, Run, SourceId};
use super::sparse::{ZEROS, stretches};
use super::status::{Id, Status};
use super::sys::{start_writing, store};
use super::{CommitGate, Extent};

/// Bytes after which the disk starts to write them, so that little is left for the sync at the end.
pub(super) const START_BYTES: u64 = 8 << 20;
/// How often the bytes of a file are synced that a later transfer can go on with. A power failure costs what
/// came since then.
const SYNC_PERIOD: Duration = Duration::from_secs(2);

/// An open file that is being written.
#[derive(Debug)]
pub(super) struct OpenPart {
    file: LockedFile,
    /// `None`: it has no name.
    pub(super) name: Option<PartName>,
    id: Id,
    stream: FileStream,
    length: u64,
    gate: CommitGate,
    /// Bytes that the disk has started to write; `None` if nobody waits for the disk.
    started_bytes: Option<u64>,
    sparse: bool,
    /// Which file it is, if a later transfer can go on with it.
    source: Option<SourceId>,
    synced_at: Instant,
    syncing: Option<JoinHandle<io::Result<()>>>,
    wanted: Wanted,
    /// Marks the file as in use while a later transfer could want it.
    in_use: Option<InUse>,
}

/// A file whose bytes have all arrived, with the hash of these bytes.
#[derive(Debug)]
pub(super) struct Part {
    /// `None`: it has no name, and is open.
    pub(super) name: Option<PartName>,
    pub(super) id: Id,
    pub(super) hash: blake3::Hash,
    /// The open file, which holds the lock.
    pub(super) file: Option<LockedFile>,
    /// Marks the file as in use while another transfer could want it.
    pub(super) in_use: Option<InUse>,
}

/// What a temporary file is made for.
#[derive(Clone, Debug, Default)]
pub(super) struct PartOptions<'a> {
    pub(super) length: u64,
    /// Blocks of zeros stay holes.
    pub(super) sparse: bool,
    /// Where the data of a sparse file are; `None`: everywhere.
    pub(super) data: Option<&'a [Extent]>,
    /// The file will be synced.
    pub(super) sync: bool,
    /// It may be without a name until it is whole. Some systems refuse a name to a file that belongs to another user.
    pub(super) unnamed: bool,
    /// Which file it is, if a later transfer can go on with it.
    pub(super) source: Option<SourceId>,
    /// Whether a later transfer wants a file of this one.
    pub(super) wanted: Wanted,
    /// Ends the work on long holes when it is closed.
    pub(super) gate: CommitGate,
}

/// Makes a file under a temporary name, locked.
pub(super) fn create_named(directory: &Directory) -> io::Result<(LockedFile, Id, PartName)> {
    // The inode is known after the file was made. Nobody else looks for files of this name, and
    // when the file gets the name that others look for, it is locked.
    let (random, first) = new_name_of()?;
    let file = LockedFile::if_possible(directory.create_new(&first)?);
    let prepared = || {
        let id = Status::of_file(&file)?.id;
        let name = PartName::new(random, id);
        directory.rename(&first, &name.bytes())?;
        Ok((id, name))
    };
    let (id, name) = prepared().inspect_err(|_: &io::Error| {
        let _ = directory.remove(&first);
    })?;
    Ok((file, id, name))
}

impl OpenPart {
    /// Makes a file in a directory. If it has a name, it is locked.
    pub(super) fn create(directory: &Directory, options: PartOptions<'_>) -> io::Result<Self> {
        if options.unnamed
            && options.length < MIN_PARTIAL_BYTES
            && let Ok(file) = directory.create_unnamed()
        {
            let id = Status::of_file(&file)?.id;
            let file = LockedFile::unnamed(file);
            return Ok(Self::of(file, (id, None), 0, options));
        }
        let (file, id, name) = create_named(directory)?;
        Ok(Self::of(file, (id, Some(name)), 0, options))
    }

    /// Goes on with the file of an interrupted transfer.
    pub(super) fn resume(interrupted: Interrupted, options: PartOptions<'_>) -> io::Result<Self> {
        let id_and_name = (interrupted.id, Some(interrupted.name));
        interrupted.file.set_len(interrupted.bytes)?;
        Ok(Self {
            in_use: interrupted.in_use,
            ..Self::of(interrupted.file, id_and_name, interrupted.bytes, options)
        })
    }

    fn of(
        file: LockedFile,
        (id, name): (Id, Option<PartName>),
        bytes: u64,
        options: PartOptions<'_>,
    ) -> Self {
        Self {
            file,
            name,
            id,
            stream: FileStream::new(options.data, options.length, bytes),
            length: options.length,
            gate: options.gate,
            started_bytes: options.sync.then_some(bytes),
            sparse: options.sparse,
            source: options.source,
            synced_at: Instant::now(),
            syncing: None,
            wanted: options.wanted,
            in_use: None,
        }
    }

    /// Says which blocks come again, and gives the hashes of all blocks that were there before.
    pub(super) fn send_again(
        &mut self,
        data: Option<&[Extent]>,
        before: Vec<BlockHash>,
        runs: &[Run],
    ) {
        self.stream.send_again(data, before, runs);
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (offset, room) = match self.stream.step(&self.gate)? {
                Piece::Data { offset, bytes } => (offset, bytes),
                Piece::Zeros(range) => {
                    self.write_zeros(range.start, range.end)?;
                    continue;
                }
                Piece::Unknown | Piece::End => {
                    return Err(io::Error::other("bytes after the end of the file"));
                }
            };
            let room = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            let (piece, rest) = bytes.split_at(room);
            // In a block that comes again, zeros replace other bytes.
            if self.sparse && self.stream.is_first_part() {
                for (offset, stretch) in stretches(offset, piece) {
                    self.file.write_all_at(stretch, offset)?;
                }
            } else {
                self.file.write_all_at(piece, offset)?;
            }
            self.stream.advance(piece);
            bytes = rest;
        }
        self.start_writing(START_BYTES);
        Ok(())
    }

    fn write_zeros(&self, mut start: u64, end: u64) -> io::Result<()> {
        while start < end {
            let piece = usize::try_from(end - start).map_or(ZEROS.len(), |it| it.min(ZEROS.len()));
            self.file.write_all_at(&ZEROS[..piece], start)?;
            start += u64::try_from(piece).unwrap_or(u64::MAX);
        }
        Ok(())
    }

    /// Makes the disk start to write what it has not started to write yet, if that is enough bytes.
    fn start_writing(&mut self, enough_bytes: u64) {
        let end = self.stream.offset();
        if let Some(started_bytes) = &mut self.started_bytes
            && let Some(bytes) = end.checked_sub(*started_bytes)
            && bytes >= enough_bytes
        {
            start_writing(&self.file, *started_bytes, bytes);
            *started_bytes = end;
        }
    }

    /// Makes it possible that a later transfer goes on with the file, once that is worth it: gives it a name that
    /// lasts, and syncs it from time to time, in a thread of its own.
    ///
    /// # Errors
    /// The file cannot be renamed, or bytes of it may be lost.
    pub(super) fn keep(&mut self, directory: &Directory) -> io::Result<()> {
        let (Some(source), Some(former)) = (self.source, self.name) else {
            return Ok(());
        };
        if self.stream.offset() < MIN_PARTIAL_BYTES {
            return Ok(());
        }
        if former.source().is_none() {
            let name = PartName::lasting(source, self.id);
            directory.rename(&former.bytes(), &name.bytes())?;
            self.name = Some(name);
            self.in_use = Some(InUse::begin(self.id, &self.wanted));
            self.start_sync(directory)?;
        }
        if self.syncing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.end_sync()?;
        }
        if self.syncing.is_none() && self.synced_at.elapsed() >= SYNC_PERIOD {
            self.start_sync(directory)?;
        }
        Ok(())
    }

    /// Starts to sync what has arrived, and the name of the file.
    fn start_sync(&mut self, directory: &Directory) -> io::Result<()> {
        if self.started_bytes.is_none() {
            return Ok(());
        }
        self.set_length()?;
        let (file, directory) = (self.file.try_clone()?, directory.another()?);
        let sync = move || {
            retry_on_intr(|| fdatasync(&file))?;
            sync_directory(&directory)
        };
        self.syncing = Some(thread::Builder::new().name("sync".into()).spawn(sync)?);
        self.synced_at = Instant::now();
        Ok(())
    }

    /// Waits until the sync in progress has ended.
    fn end_sync(&mut self) -> io::Result<()> {
        let synced = self.syncing.take().map(JoinHandle::join);
        synced.map_or(Ok(()), |synced| {
            synced.unwrap_or_else(|_| Err(io::Error::other("the thread that syncs has failed")))
        })
    }

    /// Syncs what has arrived, before the file is left to a later transfer.
    pub(super) fn leave(&mut self, directory: &Directory) -> io::Result<()> {
        self.end_sync()?;
        self.start_sync(directory)?;
        self.end_sync()
    }

    /// Gives a file with holes the length that has arrived, also if the last bytes are zeros.
    fn set_length(&self) -> io::Result<()> {
        match self.sparse && self.stream.is_first_part() {
            true => self.file.set_len(self.stream.offset()),
            false => Ok(()),
        }
    }

    pub(super) fn end(mut self) -> io::Result<Part> {
        self.end_sync()?;
        self.start_writing(1);
        // Only holes are left, unless the sender has abandoned the file.
        while let Piece::Zeros(range) = self.stream.step(&self.gate)? {
            self.write_zeros(range.start, range.end)?;
        }
        if self.sparse {
            self.file.set_len(self.length)?;
        }
        store(&self.file)?;
        Ok(Part {
            name: self.name,
            id: self.id,
            hash: self.stream.hash(),
            file: Some(self.file),
            in_use: self.in_use,
        })
    }
}
