//! Files that go on after an interruption (P8.8).

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{SenderReport, Sink, SinkError};
use crate::file_hash::BlockHash;
use crate::interrupted::make_private;
use crate::locks::lock;
use crate::part_file::{OpenPart, PartOptions};
use crate::partial::are_within;
use crate::prefix::unsent_bytes;
use crate::{Partial, PrefixReader, Run, Wanted};

/// The blocks of a file that come again.
#[derive(Debug)]
pub(super) struct Again {
    runs: Vec<Run>,
    /// In the stream.
    bytes: u64,
    /// The hashes of what this end has.
    before: Vec<BlockHash>,
}

/// An interrupted file that waits for its transfer to go on.
#[derive(Debug)]
pub struct KeptPart {
    /// Where it shall be.
    pub path: PathBuf,
    /// Where it is.
    pub part: PathBuf,
}

impl Sink {
    /// Returns the files whose first bytes are there, in ascending order of their entries.
    #[must_use]
    pub fn partials(&self) -> &[Partial] {
        &self.partials
    }

    /// Returns what reads them, to be used at once by another thread; `None` if there are none.
    pub fn prefix_reader(&self) -> Option<PrefixReader> {
        let interrupted = &self.tree.interrupted;
        let files = self.partials.iter().filter_map(|partial| {
            let file = interrupted.open(partial.entry)?.try_clone().ok()?;
            Some((*partial, file))
        });
        let files: VecDeque<_> = files.collect();
        let (gate, checked) = (self.gate.clone(), Arc::clone(&self.checked));
        (!files.is_empty()).then(|| PrefixReader::new(files, gate, checked))
    }

    /// Bytes of the stream that this end has already, as far as this is known before files are compared.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        unsent_bytes(self.present(), &self.partials, &self.manifest)
    }

    /// Processes the report on which blocks of a file of [`Sink::partials`] come again. Returns how many bytes of
    /// the stream do not.
    ///
    /// # Errors
    /// [`SinkError::OutOfTurn`]; [`SinkError::BadBlocks`] for blocks that are not there, for a second report,
    /// and for one that comes before this end has read its blocks; [`SinkError::Stopped`].
    pub fn handle_compared(&mut self, index: u32, runs: Vec<Run>) -> Result<u64, SinkError> {
        self.check_turn(index)?;
        let bad = SinkError::BadBlocks { index };
        let Some(partial) = self
            .partial(index)
            .filter(|it| are_within(&runs, it.blocks()))
        else {
            return Err(bad);
        };
        let before = lock(&self.checked).remove(&index).unwrap_or_default();
        if before.len() != usize::try_from(partial.blocks()).unwrap_or(usize::MAX) {
            return Err(bad);
        }
        let data = self.manifest.data(index);
        let bytes = runs.iter().map(|run| run.stream_bytes(data)).sum();
        let again = Again {
            runs,
            bytes,
            before,
        };
        self.again.insert(index, again);
        let resumed_bytes = self.manifest.stream_bytes_of(index) - self.bytes(index);
        if let Some(mut current) = self.current.take() {
            if current.index == index
                && let Some(part) = current.open_part()
            {
                self.send_again(index, part);
            }
            self.current = Some(current);
        }
        self.settle()?;
        Ok(resumed_bytes)
    }

    /// What was there of a file at the start of the transfer.
    fn partial(&self, index: u32) -> Option<Partial> {
        let at = self.partials.binary_search_by_key(&index, |it| it.entry);
        at.ok().map(|at| self.partials[at])
    }

    /// Whether a file goes on, and the sender has not said that it needs no more bytes.
    pub(super) fn goes_on(&self, index: u32) -> bool {
        let claim = self.claims.front().filter(|(of, _)| *of == index);
        let is_over = claim.is_some_and(|(_, claim)| !matches!(claim, SenderReport::Hash(_)));
        self.partial(index).is_some() && !is_over
    }

    /// Whether nobody has said yet which blocks of a file come again.
    pub(super) fn is_open_end(&self, index: u32) -> bool {
        self.goes_on(index) && !self.again.contains_key(&index)
    }

    /// Bytes of a file in the stream, as far as they are known.
    pub(super) fn bytes(&self, index: u32) -> u64 {
        let bytes = self.manifest.stream_bytes_of(index);
        let Some(partial) = self.partial(index) else {
            return bytes;
        };
        let again = self.again.get(&index).map_or(0, |again| again.bytes);
        bytes - partial.stream_bytes(&self.manifest) + again
    }

    /// Makes a temporary file, or goes on with one.
    pub(super) fn create(&mut self, index: u32) -> io::Result<OpenPart> {
        let manifest = Arc::clone(&self.manifest);
        let file = manifest.next_file(index).ok_or(io::ErrorKind::NotFound)?;
        let options = PartOptions {
            length: file.length,
            sparse: file.sparse,
            data: manifest.data(index),
            sync: self.policy.sync,
            unnamed: !self.policy.owners,
            source: self.tree.source(index),
            wanted: self.tree.interrupted.wanted.clone(),
            gate: self.gate.clone(),
        };
        if let Some(interrupted) = self.tree.interrupted.take(index) {
            let mut part = OpenPart::resume(interrupted, options)?;
            self.send_again(index, &mut part);
            return Ok(part);
        }
        OpenPart::create(self.tree.around(index)?, options)
    }

    /// Tells a file which of its blocks come again, if that is known.
    fn send_again(&mut self, index: u32, part: &mut OpenPart) {
        if let Some(again) = self.again.get_mut(&index) {
            let before = std::mem::take(&mut again.before);
            part.send_again(self.manifest.data(index), before, &again.runs);
        }
    }

    /// Returns what answers later transfers of the same peer that want a file of this one.
    pub fn wanted(&self) -> Wanted {
        self.tree.interrupted.wanted.clone()
    }

    /// Syncs what has arrived of the file that is under way, and returns the files that wait for their transfer
    /// to go on, after a transfer that has failed.
    pub fn keep_parts(&mut self) -> Vec<KeptPart> {
        if self.is_full || self.policy.resume.is_none() {
            return Vec::new();
        }
        if let Some(mut current) = self.current.take() {
            let around = self.tree.around(current.index).ok();
            if let Some((part, around)) = current.open_part().zip(around) {
                let _ = part.leave(around);
            }
            self.current = Some(current);
        }
        for (_, whole) in &self.whole {
            // It has the mode of the sender already.
            let _ = whole.open_file().map(make_private);
        }
        let parts = self.part_names();
        let parts = parts.filter(|(_, name)| name.source().is_some());
        let parts = parts.map(|(index, name)| {
            let path = self.tree.path(index);
            let name = String::from_utf8_lossy(&name.bytes()).into_owned();
            KeptPart {
                part: path.with_file_name(name),
                path,
            }
        });
        parts.collect()
    }
}
