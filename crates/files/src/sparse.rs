//! Files with holes.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::detail::MAX_EXTENTS;
use super::file_hash::FileHasher;
use super::{CommitGate, Extent};

/// The block size that file systems allocate, or a multiple of it.
const BLOCK_BYTES: u64 = 4096;

/// Bytes of zeros that are hashed or written at a time.
pub(super) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Returns where the data of a file of this length are; `None` if the file system does not tell. If there
/// are very many holes, the last extent has the remaining ones.
pub(super) fn extents(file: &File, length: u64) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut end = 0;
    while end < length {
        let start = match seek(file, SeekFrom::Data(end)) {
            Ok(start) if start < length => start,
            Ok(_) | Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let hole_bytes = start.checked_sub(end)?;
        let next = match seek(file, SeekFrom::Hole(start)) {
            Ok(next) if extents.len() + 1 < MAX_EXTENTS => next.min(length),
            Ok(_) => length,
            Err(_) => return None,
        };
        let data_bytes = next.checked_sub(start).filter(|bytes| *bytes > 0)?;
        extents.push(Extent {
            hole_bytes,
            data_bytes,
        });
        end = next;
    }
    // A file that is written to at the moment can answer anything.
    let is_apart = extents.iter().skip(1).all(|extent| extent.hole_bytes > 0);
    is_apart.then_some(extents)
}

/// Moves through a part of a file whose holes are not in the stream, and hashes it with its holes.
#[derive(Debug)]
pub(super) struct Layout {
    /// What is left, the next last.
    rest: Vec<Extent>,
    /// Where the next byte of the stream lies in the file.
    pub(super) offset: u64,
    end: u64,
}

impl Layout {
    /// `extents` are those of a sparse file; `None`: all of the file is in the stream. `range` is the part
    /// of the file.
    pub(super) fn new(extents: Option<&[Extent]>, range: Range<u64>) -> Self {
        let whole = [Extent {
            hole_bytes: 0,
            data_bytes: range.end,
        }];
        let mut rest = Vec::new();
        // Where an extent ends, and the last one of this part.
        let (mut at, mut last) = (0_u64, range.start);
        for extent in extents.unwrap_or(&whole) {
            let data = at.saturating_add(extent.hole_bytes);
            at = data.saturating_add(extent.data_bytes);
            let (start, end) = (data.max(range.start), at.min(range.end));
            if start < end {
                rest.push(Extent {
                    hole_bytes: start - last,
                    data_bytes: end - start,
                });
                last = end;
            }
        }
        rest.reverse();
        Self {
            rest,
            offset: range.start,
            end: range.end,
        }
    }

    /// Bytes in the stream that are left.
    pub(super) fn stream_bytes(&self) -> u64 {
        self.rest.iter().map(|extent| extent.data_bytes).sum()
    }

    /// Goes to the next byte of the stream. Returns how many bytes lie there in one piece; 0 at the end of
    /// the data. `hasher` gets the hole before.
    pub(super) fn piece(&mut self, hasher: &mut FileHasher, gate: &CommitGate) -> io::Result<u64> {
        let Some(next) = self.rest.last_mut() else {
            return Ok(0);
        };
        hash_zeros(hasher, next.hole_bytes, gate)?;
        self.offset += next.hole_bytes;
        next.hole_bytes = 0;
        Ok(next.data_bytes)
    }

    /// Notes that bytes of the piece were processed.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.offset += bytes;
        if let Some(next) = self.rest.last_mut() {
            next.data_bytes -= bytes.min(next.data_bytes);
            if next.data_bytes == 0 {
                self.rest.pop();
            }
        }
    }

    /// Hashes the hole at the end.
    pub(super) fn finish(&mut self, hasher: &mut FileHasher, gate: &CommitGate) -> io::Result<()> {
        let left = self.end.saturating_sub(self.offset);
        self.offset += left;
        hash_zeros(hasher, left, gate)
    }
}

/// Hashes zeros. A peer can announce a hole of any length, so this ends when the gate is closed.
fn hash_zeros(hasher: &mut FileHasher, mut bytes: u64, gate: &CommitGate) -> io::Result<()> {
    while bytes > 0 {
        if gate.is_closed() {
            return Err(io::Error::other("the transfer was stopped"));
        }
        let piece = usize::try_from(bytes).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        hasher.update(&ZEROS[..piece]);
        bytes -= u64::try_from(piece).unwrap_or(bytes);
    }
    Ok(())
}

/// Returns the stretches of `bytes` that must be written so that a new file has these bytes at
/// `offset`, each with its position in the file. Omitted bytes are zeros within one block of the
/// file, and a new file contains zeros there anyway.
pub(super) fn stretches(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_zero(block(offset, bytes, at)) {
            at += block(offset, bytes, at).len();
        }
        let start = at;
        while at < bytes.len() && !is_zero(block(offset, bytes, at)) {
            at += block(offset, bytes, at).len();
        }
        let place = offset + u64::try_from(start).unwrap_or(u64::MAX);
        (start < at).then(|| (place, &bytes[start..at]))
    })
}

/// Returns the bytes from `at` to the end of the block of the file that contains it.
fn block(offset: u64, bytes: &[u8], at: usize) -> &[u8] {
    let rest = &bytes[at..];
    let place = offset + u64::try_from(at).unwrap_or(u64::MAX);
    let room = BLOCK_BYTES - place % BLOCK_BYTES;
    let room = usize::try_from(room).map_or(rest.len(), |room| room.min(rest.len()));
    &rest[..room]
}

/// Reads every byte: compilers make this faster than an early exit.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places(offset: u64, bytes: &[u8]) -> Vec<(u64, usize)> {
        stretches(offset, bytes)
            .map(|(place, stretch)| (place, stretch.len()))
            .collect()
    }

    #[test]
    fn blocks_of_zeros_are_left_out() {
        let mut bytes = vec![0; 5 * 4096];
        assert_eq!(places(0, &bytes), []);
        bytes[4096] = 1;
        bytes[3 * 4096 - 1] = 1;
        assert_eq!(places(0, &bytes), [(4096, 8192)]);
        // One byte later in the file, the same bytes belong to other blocks.
        assert_eq!(places(1, &bytes), [(4096, 4096), (12288, 4096)]);
    }

    proptest! {
        #[test]
        fn stretches_over_zeros_are_the_bytes(
            offset in 0u64..10_000,
            runs in prop::collection::vec((any::<bool>(), 1usize..6000), 0..8),
        ) {
            let bytes: Vec<u8> = runs
                .iter()
                .flat_map(|(zero, length)| vec![u8::from(!zero); *length])
                .collect();
            let mut file = vec![0; bytes.len()];
            for (place, stretch) in stretches(offset, &bytes) {
                let at = usize::try_from(place - offset).expect("in the file");
                file[at..at + stretch.len()].copy_from_slice(stretch);
            }
            prop_assert_eq!(file, bytes);
        }
    }
}
