//! Encodes and decodes a group chunk by chunk, as chunks become ready or arrive.

use alloc::vec::Vec;
use core::ops::Range;

use crate::code::Kind;
use crate::codec::Codec;
use crate::error::CodecError;
use crate::kernel::Start;
use crate::mask::{ChunkMask, Present};
use crate::repair;

/// Computes the parity of one group from data chunks in any order. The result is the same as with
/// [`Codec::encode`]. Each call of [`Self::add`] reads and writes all parity once, so a run of
/// several chunks is faster than the same chunks one at a time.
#[derive(Debug)]
pub struct Encoder<'a> {
    codec: &'a Codec,
    data_bytes: usize,
    chunk_bytes: usize,
    sums: &'a mut [u8],
    added: ChunkMask,
}

impl<'a> Encoder<'a> {
    /// Begins a group of `data_bytes` bytes of data. `parity` is cleared and receives the parity.
    /// The lengths are as in [`Codec::encode`].
    ///
    /// # Errors
    /// If the lengths do not match the code or each other.
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

    /// Adds a run of data chunks that begins with chunk `first`. All chunks of the run are whole,
    /// except that the last chunk of the group can be short.
    ///
    /// # Errors
    /// If the group does not have these chunks, if the bytes are not whole chunks, or if a chunk
    /// was added before.
    pub fn add(&mut self, first: usize, data: &[u8]) -> Result<(), CodecError> {
        let chunks = run(first, data.len(), self.chunk_bytes, self.data_bytes)?;
        mark(&mut self.added, chunks)?;
        let data: Vec<_> = data.chunks(self.chunk_bytes).collect();
        let mut sums: Vec<_> = self.sums.chunks_exact_mut(self.chunk_bytes).collect();
        self.codec.sum(first, &data, &mut sums, Start::Output);
        Ok(())
    }

    /// Returns the data chunks that have been added.
    pub fn added(&self) -> &ChunkMask {
        &self.added
    }

    /// Ends the group. The memory given to [`Self::new`] now holds its parity.
    ///
    /// # Errors
    /// If a data chunk has not been added.
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

/// Rebuilds the missing data of one group from data and parity chunks in any order. The result is
/// the same as with [`Codec::recover`].
///
/// The decoder adds each chunk to the sums when the chunk arrives. For each present parity chunk,
/// the sum is then the parity chunk minus the part of the present data: the contribution of the
/// missing data (the syndrome). So [`Self::finish`] reads only as many sums as chunks are missing.
#[derive(Debug)]
pub struct Decoder<'a> {
    /// When all arrived chunks are added: for each present parity chunk, the contribution of the
    /// missing data chunks.
    syndromes: Encoder<'a>,
    parity: ChunkMask,
}

impl<'a> Decoder<'a> {
    /// Begins a group of `data_bytes` bytes of data. `scratch` has the length of the parity and
    /// holds the sums.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other.
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

    /// Adds data chunks that have arrived, as [`Encoder::add`] does.
    ///
    /// # Errors
    /// As for [`Encoder::add`].
    pub fn add_data(&mut self, first: usize, data: &[u8]) -> Result<(), CodecError> {
        self.syndromes.add(first, data)
    }

    /// Adds a run of parity chunks that have arrived. The run begins with parity chunk `first`.
    ///
    /// # Errors
    /// If the group does not have these chunks, if the bytes are not whole chunks, or if a chunk
    /// was added before.
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

    /// Returns the chunks that have been added.
    pub fn present(&self) -> Present {
        Present {
            data: self.syndromes.added,
            parity: self.parity,
        }
    }

    /// Returns whether enough chunks have been added to rebuild the data.
    pub fn recoverable(&self) -> bool {
        let code = self.syndromes.codec.code();
        code.recoverable(self.syndromes.data_chunks(), &self.present())
    }

    /// Rebuilds the missing chunks in place and returns which they are. `data` is the whole group.
    /// Only the missing chunks are written; no byte of `data` is read.
    ///
    /// # Errors
    /// If `data` does not have the length given to [`Self::new`], or if more chunks are lost than
    /// the code can repair.
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
            return Err(CodecError::OtherDataBytes {
                given: data.len(),
                expected: data_bytes,
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

/// Returns the indices of the chunks in a run of `bytes` bytes that begins with chunk `first`, in a
/// group of `end` bytes.
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

/// Adds all of the chunks to the set, or none if one of them is already in it.
fn mark(set: &mut ChunkMask, mut chunks: Range<usize>) -> Result<(), CodecError> {
    if let Some(chunk) = chunks.clone().find(|&chunk| set.contains(chunk)) {
        return Err(CodecError::Again { chunk });
    }
    chunks.all(|chunk| set.insert(chunk));
    Ok(())
}
