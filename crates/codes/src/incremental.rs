//! Codes chunk by chunk, as chunks become ready or arrive.

use alloc::vec::Vec;
use core::ops::Range;

use crate::code::Kind;
use crate::codec::Codec;
use crate::error::CodecError;
use crate::kernel::Start;
use crate::mask::{ChunkMask, Present};
use crate::repair;

/// Makes the parity of one group from data chunks in any order; the same bytes as
/// [`Codec::encode`]. Adding runs of several chunks is faster than adding single ones, as parity is
/// read and written once for each.
#[derive(Debug)]
pub struct Encoder<'a> {
    codec: &'a Codec,
    data_bytes: usize,
    chunk_bytes: usize,
    sums: &'a mut [u8],
    added: ChunkMask,
}

impl<'a> Encoder<'a> {
    /// Begins a group of `data_bytes` bytes of data, whose parity will be in `parity` (which is
    /// cleared). Lengths are as in [`Codec::encode`].
    ///
    /// # Errors
    /// Lengths that do not fit the code or one another.
    pub fn new(
        codec: &'a Codec,
        data_bytes: usize,
        chunk_bytes: usize,
        parity: &'a mut [u8],
    ) -> Result<Self, CodecError> {
        codec.check_group(data_bytes, chunk_bytes, parity.len())?;
        parity.fill(0);
        Ok(Self {
            codec,
            data_bytes,
            chunk_bytes,
            sums: parity,
            added: ChunkMask::EMPTY,
        })
    }

    /// Adds the data chunks that begin with chunk `first`: one or several whole chunks, of which
    /// the group's last can be short.
    ///
    /// # Errors
    /// Chunks that the group does not have, parts of chunks, a chunk for the second time.
    pub fn add(&mut self, first: usize, data: &[u8]) -> Result<(), CodecError> {
        let chunks = run(first, data.len(), self.chunk_bytes, self.data_bytes)?;
        mark(&mut self.added, chunks)?;
        let data: Vec<_> = data.chunks(self.chunk_bytes).collect();
        let mut sums: Vec<_> = self.sums.chunks_exact_mut(self.chunk_bytes).collect();
        self.codec.sum(first, &data, &mut sums, Start::Output);
        Ok(())
    }

    /// The data chunks that have been added.
    pub fn added(&self) -> &ChunkMask {
        &self.added
    }

    /// Ends the group: its parity is in the memory that was given.
    ///
    /// # Errors
    /// Data chunks that have not been added.
    pub fn finish(self) -> Result<(), CodecError> {
        match self.added.missing(self.data_chunks()).len() {
            0 => Ok(()),
            missing => Err(CodecError::Unfinished { missing }),
        }
    }

    fn data_chunks(&self) -> usize {
        self.data_bytes.div_ceil(self.chunk_bytes)
    }
}

/// Rebuilds the missing data of one group from data and parity chunks in any order; the same bytes
/// as [`Codec::recover`]. What arrives is added up at once, so that at the end only as many chunks
/// are read as are missing.
#[derive(Debug)]
pub struct Decoder<'a> {
    /// What the missing data chunks make of each parity chunk that is there.
    syndromes: Encoder<'a>,
    parity: ChunkMask,
}

impl<'a> Decoder<'a> {
    /// Begins a group of `data_bytes` bytes of data. `scratch` is as long as the parity, and holds
    /// sums in between.
    ///
    /// # Errors
    /// Lengths that do not fit the code or one another.
    pub fn new(
        codec: &'a Codec,
        data_bytes: usize,
        chunk_bytes: usize,
        scratch: &'a mut [u8],
    ) -> Result<Self, CodecError> {
        Ok(Self {
            syndromes: Encoder::new(codec, data_bytes, chunk_bytes, scratch)?,
            parity: ChunkMask::EMPTY,
        })
    }

    /// Adds data chunks that have arrived, as [`Encoder::add`].
    ///
    /// # Errors
    /// Chunks that the group does not have, parts of chunks, a chunk for the second time.
    pub fn add_data(&mut self, first: usize, data: &[u8]) -> Result<(), CodecError> {
        self.syndromes.add(first, data)
    }

    /// Adds one or several parity chunks that have arrived, the first of them chunk `first`.
    ///
    /// # Errors
    /// Chunks that the group does not have, parts of chunks, a chunk for the second time.
    pub fn add_parity(&mut self, first: usize, parity: &[u8]) -> Result<(), CodecError> {
        let Encoder {
            codec,
            chunk_bytes,
            ref mut sums,
            ..
        } = self.syndromes;
        let chunks = run(first, parity.len(), chunk_bytes, sums.len())?;
        mark(&mut self.parity, chunks.clone())?;
        let range = chunks.start * chunk_bytes..chunks.end * chunk_bytes;
        codec
            .kernel()
            .add(&[parity], &mut sums[range], Start::Output);
        Ok(())
    }

    /// What has been added.
    pub fn present(&self) -> Present {
        Present {
            data: self.syndromes.added,
            parity: self.parity,
        }
    }

    /// Returns whether [`Self::finish`] would succeed.
    pub fn recoverable(&self) -> bool {
        let code = self.syndromes.codec.code();
        code.recoverable(self.syndromes.data_chunks(), &self.present())
    }

    /// Rebuilds the missing chunks in place: `data` is the whole group, of which only these are
    /// written, and none is read. The chunks that were rebuilt.
    ///
    /// # Errors
    /// Another length than was said at the beginning; more losses than can be repaired.
    pub fn finish(self, data: &mut [u8]) -> Result<ChunkMask, CodecError> {
        let present = self.present();
        let Encoder {
            codec,
            data_bytes,
            chunk_bytes,
            sums,
            ..
        } = self.syndromes;
        if data.len() != data_bytes {
            return Err(CodecError::DataBytes {
                given: data.len(),
                most: data_bytes,
            });
        }
        let data_chunks = data_bytes.div_ceil(chunk_bytes);
        codec.check_recoverable(data_chunks, &present)?;
        let missing = present.data.missing(data_chunks);
        let sums: Vec<_> = sums.chunks_exact(chunk_bytes).collect();
        let lost = data.chunks_mut(chunk_bytes).enumerate();
        let lost = lost.filter(|(chunk, _)| missing.contains(*chunk));
        match codec.code().kind() {
            Kind::Xor => {
                for (chunk, bytes) in lost {
                    bytes.copy_from_slice(&sums[chunk % codec.code().m()][..bytes.len()]);
                }
            }
            Kind::Mds => {
                let chosen = repair::chosen(&present.parity, &missing);
                let inputs: Vec<_> = chosen.iter().map(|&chunk| sums[chunk]).collect();
                let mut outputs: Vec<_> = lost.map(|(_, bytes)| bytes).collect();
                let inverse = repair::inverse(codec.code(), &chosen, &missing);
                codec
                    .kernel()
                    .multiply(&inverse, &inputs, &mut outputs, Start::Zero);
            }
        }
        Ok(missing)
    }
}

/// The chunks that `bytes` bytes from chunk `first` on are, in a group of `end` bytes.
fn run(
    first: usize,
    bytes: usize,
    chunk_bytes: usize,
    end: usize,
) -> Result<Range<usize>, CodecError> {
    let last = first
        .checked_mul(chunk_bytes)
        .and_then(|start| start.checked_add(bytes))
        .filter(|&last| last == end || (last < end && bytes.is_multiple_of(chunk_bytes)));
    match last {
        Some(last) if bytes > 0 => Ok(first..last.div_ceil(chunk_bytes)),
        _ => Err(CodecError::Run {
            first,
            given: bytes,
            chunk_bytes,
            end,
        }),
    }
}

/// Puts all of the chunks into the set, or none.
fn mark(set: &mut ChunkMask, mut chunks: Range<usize>) -> Result<(), CodecError> {
    if let Some(chunk) = chunks.clone().find(|&chunk| set.contains(chunk)) {
        return Err(CodecError::Again { chunk });
    }
    chunks.all(|chunk| set.insert(chunk));
    Ok(())
}
