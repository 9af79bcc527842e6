//! Compares what a receiver has of interrupted files with the files of the sender, while the rest of them is
//! on its way (P8.8).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::compare::Present;
use super::file_hash::{BLOCK_BYTES, BlockHash, block_hash, offset_of};
use super::locks::lock;
use super::partial::{Partial, Run, differences};
use super::{CommitGate, Manifest, Message};

/// The hash of a block that cannot be read. No block has it.
const UNREADABLE: BlockHash = [0; 32];

/// The hashes of the receiver's blocks, by the number of the file.
pub(super) type Checked = Arc<Mutex<HashMap<u32, Vec<BlockHash>>>>;

/// Reads, at the receiver, what it has of interrupted files. Another thread than that of the
/// [`Sink`](super::Sink) uses it.
#[derive(Debug)]
pub struct PrefixReader {
    files: VecDeque<(Partial, File)>,
    next: u32,
    buffer: Vec<u8>,
    gate: CommitGate,
    checked: Checked,
}

impl PrefixReader {
    pub(super) fn new(
        files: VecDeque<(Partial, File)>,
        gate: CommitGate,
        checked: Checked,
    ) -> Self {
        Self {
            files,
            next: 0,
            buffer: Vec::new(),
            gate,
            checked,
        }
    }

    /// Bytes that one call of [`PrefixReader::read`] reads.
    pub const READ_BYTES: u64 = BLOCK_BYTES;

    /// Reads the next block, and returns its hash as a message for the sender; `None` after the last, or when the
    /// transfer has ended. A block that cannot be read counts as one that differs.
    pub fn read(&mut self) -> Option<Message> {
        let (partial, file) = self.files.front()?;
        if self.gate.is_closed() {
            return None;
        }
        let (index, first) = (partial.entry, self.next);
        let hash = read_block(file, first, &mut self.buffer).unwrap_or(UNREADABLE);
        let mut checked = lock(&self.checked);
        checked.entry(index).or_default().push(hash);
        self.next += 1;
        if self.next == partial.blocks() {
            self.files.pop_front();
            self.next = 0;
        }
        Some(Message::BlockHashes {
            index,
            first,
            hashes: vec![hash],
        })
    }
}

/// Reads a block that has bytes after it.
fn read_block(file: &File, block: u32, buffer: &mut Vec<u8>) -> io::Result<BlockHash> {
    buffer.resize(usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX), 0);
    file.read_exact_at(buffer, offset_of(block))?;
    Ok(block_hash(block, buffer))
}

/// The hashes of both ends, at the sender. Clones share them: one thread adds those of the receiver, and a
/// [`Source`](super::Source) reads and compares its own.
#[derive(Clone, Debug, Default)]
pub struct PrefixHashes(Arc<SharedPrefix>);

#[derive(Debug, Default)]
struct SharedPrefix {
    state: Mutex<PrefixState>,
    changed: Condvar,
    read_bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct PrefixState {
    prefixes: BTreeMap<u32, Prefix>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Prefix {
    blocks: usize,
    theirs: Vec<BlockHash>,
    ours: Vec<BlockHash>,
    failed: Option<io::Error>,
}

/// A receiver sends hashes that the sender does not expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the receiver sends hashes of file {entry} from block {first} on, which are not the next")]
pub struct PrefixError {
    /// Number of the file in the manifest.
    pub entry: u32,
    /// The first block.
    pub first: u32,
}

/// What a comparison gives: the sender's hashes, and the blocks that differ.
pub(super) type Compared = (Vec<BlockHash>, Vec<Run>);

impl PrefixHashes {
    /// Adds a file whose first blocks the receiver has.
    pub(super) fn expect(&self, partial: &Partial) {
        let blocks = usize::try_from(partial.blocks()).unwrap_or(usize::MAX);
        let prefix = Prefix {
            blocks,
            ..Prefix::default()
        };
        lock(&self.0.state).prefixes.insert(partial.entry, prefix);
    }

    /// Adds hashes of the receiver. They come in the order of the blocks.
    ///
    /// # Errors
    /// [`PrefixError`] for others.
    pub fn add(&self, entry: u32, first: u32, hashes: &[[u8; 32]]) -> Result<(), PrefixError> {
        let mut state = lock(&self.0.state);
        let prefix = state.prefixes.get_mut(&entry);
        let fits = prefix.filter(|prefix| {
            usize::try_from(first).is_ok_and(|first| first == prefix.theirs.len())
                && hashes.len() <= prefix.blocks - prefix.theirs.len()
        });
        let prefix = fits.ok_or(PrefixError { entry, first })?;
        prefix.theirs.extend_from_slice(hashes);
        self.0.changed.notify_all();
        Ok(())
    }

    /// Ends all work, because the transfer has ended.
    pub fn close(&self) {
        lock(&self.0.state).is_closed = true;
        self.0.changed.notify_all();
    }

    /// Bytes of files that this end has read to compare them.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.0.read_bytes.load(Ordering::Relaxed)
    }

    /// Waits until something has changed, up to `patience`. Returns whether the transfer goes on.
    pub(super) fn wait(&self, patience: Duration) -> bool {
        let state = lock(&self.0.state);
        if state.is_closed {
            return false;
        }
        let waited = self.0.changed.wait_timeout(state, patience);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.is_closed
    }

    /// Starts to read the blocks of a file of the sender, in a thread of its own.
    pub(super) fn start(&self, entry: u32, file: File) {
        let shared = self.clone();
        let thread = thread::Builder::new().name("prefix-reader".into());
        let started = thread.spawn(move || shared.read(entry, &file));
        if let Err(error) = started {
            self.fail(entry, error);
        }
    }

    fn read(&self, entry: u32, file: &File) {
        let mut buffer = Vec::new();
        let blocks = lock(&self.0.state)
            .prefixes
            .get(&entry)
            .map_or(0, |it| it.blocks);
        for block in 0..u32::try_from(blocks).unwrap_or(u32::MAX) {
            let hash = read_block(file, block, &mut buffer);
            self.0.read_bytes.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
            let hash = match hash {
                Ok(hash) => hash,
                Err(error) => return self.fail(entry, error),
            };
            let mut state = lock(&self.0.state);
            let PrefixState {
                prefixes,
                is_closed: false,
            } = &mut *state
            else {
                return;
            };
            if let Some(prefix) = prefixes.get_mut(&entry) {
                prefix.ours.push(hash);
            }
            self.0.changed.notify_all();
        }
    }

    fn fail(&self, entry: u32, error: io::Error) {
        if let Some(prefix) = lock(&self.0.state).prefixes.get_mut(&entry) {
            prefix.failed = Some(error);
        }
        self.0.changed.notify_all();
    }

    /// Returns the result for a file, once all hashes of both ends are there.
    pub(super) fn result(&self, entry: u32) -> Option<io::Result<Compared>> {
        let mut state = lock(&self.0.state);
        let prefix = state.prefixes.get_mut(&entry)?;
        if let Some(error) = prefix.failed.take() {
            return Some(Err(error));
        }
        let is_whole = prefix.ours.len() == prefix.blocks && prefix.theirs.len() == prefix.blocks;
        if !is_whole {
            return None;
        }
        let runs = differences(&prefix.ours, &prefix.theirs);
        Some(Ok((std::mem::take(&mut prefix.ours), runs)))
    }
}

/// Bytes of the stream that the receiver has already, as far as this is known before files are compared.
pub(super) fn unsent_bytes(present: &[Present], partials: &[Partial], manifest: &Manifest) -> u64 {
    let same = present.iter().filter(|it| it.hash.is_none());
    let same: u64 = same.map(|it| manifest.stream_bytes_of(it.entry)).sum();
    let first = partials.iter().map(|it| it.stream_bytes(manifest));
    first.fold(same, u64::saturating_add)
}
