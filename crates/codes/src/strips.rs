//! Codes a group whose bytes the caller copies out, a strip of each chunk at a time.
//!
//! So a group can be coded while other threads write to its memory: the caller copies without a
//! data race. The copies of one strip of all chunks fit the cache of a core, so they cost much less
//! than a copy of the group.

use alloc::vec::Vec;
use core::ops::Range;

use crate::codec::Codec;
use crate::error::CodecError;
use crate::kernel::{LINE, Start};
use crate::mask::Present;
use crate::repair::{Chunk, Recipe};

/// Bytes of the strips of all chunks together.
const BUFFER_BYTES: usize = 128 << 10;
/// Minimum length of a strip. Shorter copies cost more than the arithmetic.
const MIN_STRIP: usize = 1 << 10;

/// The copies of one strip of each input.
struct Strips<'a> {
    buffer: &'a mut [u8],
    /// Bytes from one copy to the next: one line more than a strip, because copies at multiples of
    /// a page would use the same few sets of the first cache.
    stride: usize,
    strip: usize,
}

impl<'a> Strips<'a> {
    fn new(buffer: &'a mut Vec<u8>, inputs: usize, chunk_bytes: usize) -> Self {
        let strip = (BUFFER_BYTES / inputs.max(1)).max(MIN_STRIP) / LINE * LINE;
        let strip = strip.min(chunk_bytes);
        let stride = strip.next_multiple_of(LINE) + LINE;
        let bytes = stride * inputs;
        buffer.resize(buffer.len().max(bytes + LINE), 0);
        let start = buffer.as_ptr().addr().wrapping_neg() % LINE;
        Self {
            buffer: &mut buffer[start..start + bytes],
            stride,
            strip,
        }
    }

    /// Returns the parts of a chunk of `chunk_bytes` bytes that are coded one after the other.
    fn spans(&self, chunk_bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let strip = self.strip;
        (0..chunk_bytes)
            .step_by(strip)
            .map(move |start| start..chunk_bytes.min(start + strip))
    }

    /// Copies an input with `read`: its first `there` bytes. The rest of the `length` bytes becomes
    /// zero.
    fn fill(&mut self, input: usize, there: usize, length: usize, read: impl FnOnce(&mut [u8])) {
        let copy = &mut self.buffer[input * self.stride..][..length];
        let (bytes, padding) = copy.split_at_mut(there);
        if there > 0 {
            read(bytes);
        }
        padding.fill(0);
    }

    fn inputs(&self, length: usize) -> Vec<&[u8]> {
        let copies = self.buffer.chunks_exact(self.stride);
        copies.map(|copy| &copy[..length]).collect()
    }
}

impl Codec {
    /// Computes the parity of one group, like [`Codec::encode`], from data that `read` copies: the
    /// bytes of the group from an offset on. `parity` gets the length of the parity. `buffer` is
    /// memory for the copies; pass the same one again.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other.
    pub fn encode_copied(
        &self,
        data_bytes: usize,
        chunk_bytes: usize,
        parity: &mut Vec<u8>,
        buffer: &mut Vec<u8>,
        mut read: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), CodecError> {
        let chunks = data_bytes.div_ceil(chunk_bytes.max(1));
        let parity_chunks = self.code().parity_chunks(chunks);
        let parity_bytes = parity_chunks.saturating_mul(chunk_bytes);
        self.check_group(data_bytes, chunk_bytes, parity_bytes)?;
        parity.resize(parity_bytes, 0);
        let mut strips = Strips::new(buffer, chunks, chunk_bytes);
        for span in strips.spans(chunk_bytes) {
            for chunk in 0..chunks {
                let start = chunk * chunk_bytes + span.start;
                let there = data_bytes.saturating_sub(start).min(span.len());
                strips.fill(chunk, there, span.len(), |out| read(start, out));
            }
            let outputs = parity.chunks_exact_mut(chunk_bytes);
            let mut outputs: Vec<_> = outputs.map(|chunk| &mut chunk[span.clone()]).collect();
            self.sum(0, &strips.inputs(span.len()), &mut outputs, Start::Zero);
        }
        Ok(())
    }

    /// Rebuilds the data chunks of one group that are not `present`, like [`Codec::recover`], from
    /// bytes that `read` copies: those of a chunk from an offset on. `rebuilt` gets the missing
    /// chunks in ascending order, each with `chunk_bytes` bytes; a short last chunk is padded with
    /// zeros. `buffer` is memory for the copies.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other, or if more chunks are lost than the code
    /// can repair.
    pub fn recover_copied(
        &self,
        data_bytes: usize,
        chunk_bytes: usize,
        present: &Present,
        rebuilt: &mut Vec<u8>,
        buffer: &mut Vec<u8>,
        mut read: impl FnMut(Chunk, usize, &mut [u8]),
    ) -> Result<(), CodecError> {
        let chunks = data_bytes.div_ceil(chunk_bytes.max(1));
        let parity_chunks = self.code().parity_chunks(chunks);
        self.check_group(
            data_bytes,
            chunk_bytes,
            parity_chunks.saturating_mul(chunk_bytes),
        )?;
        self.check_recoverable(chunks, present)?;
        let recipe = Recipe::new(self.code(), chunks, present);
        rebuilt.resize(recipe.outputs.len() * chunk_bytes, 0);
        let mut strips = Strips::new(buffer, recipe.inputs.len(), chunk_bytes);
        for span in strips.spans(chunk_bytes) {
            for (place, &input) in recipe.inputs.iter().enumerate() {
                let there = match input {
                    Chunk::Data(chunk) => data_bytes
                        .saturating_sub(chunk * chunk_bytes + span.start)
                        .min(span.len()),
                    Chunk::Parity(_) => span.len(),
                };
                strips.fill(place, there, span.len(), |out| read(input, span.start, out));
            }
            let outputs = rebuilt.chunks_exact_mut(chunk_bytes);
            let mut outputs: Vec<_> = outputs.map(|chunk| &mut chunk[span.clone()]).collect();
            recipe.apply(self.kernel(), &strips.inputs(span.len()), &mut outputs);
        }
        Ok(())
    }
}
