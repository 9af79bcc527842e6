//! Applies a code to the bytes of one group.

use alloc::vec::Vec;

use crate::code::{Code, Kind};
use crate::error::CodecError;
use crate::kernel::{Kernel, Start};
use crate::mask::Present;
use crate::matrix::{Matrix, cauchy};
use crate::repair;

/// A code with its matrix and a kernel. A codec is immutable, so threads can share it.
#[derive(Clone, Debug)]
pub struct Codec {
    code: Code,
    kernel: Kernel,
    arithmetic: Arithmetic,
}

/// The data that a codec needs in addition to the shape of its code.
#[derive(Clone, Debug)]
enum Arithmetic {
    Xor,
    /// Row `i` has the factors of parity chunk `i`.
    Mds(Matrix),
}

impl Codec {
    /// Makes a codec with the fastest available kernel.
    pub fn new(code: Code) -> Self {
        Self::with_kernel(code, Kernel::best())
    }

    /// Makes a codec with the given kernel. All kernels produce the same bytes.
    pub fn with_kernel(code: Code, kernel: Kernel) -> Self {
        let arithmetic = match code.kind() {
            Kind::Xor => Arithmetic::Xor,
            Kind::Mds => Arithmetic::Mds(Matrix::from_fn(code.m(), code.k(), |parity, data| {
                cauchy(code.k(), parity, data)
            })),
        };
        Self {
            code,
            kernel,
            arithmetic,
        }
    }

    /// Returns the code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Computes the parity of one group whose chunks are contiguous. `data` has at least 1 byte and
    /// at most `k * chunk_bytes`. A short last chunk counts as padded with zeros. `parity` has
    /// [`Code::parity_chunks`] chunks of `chunk_bytes` bytes; its contents are overwritten.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other.
    pub fn encode(
        &self,
        data: &[u8],
        chunk_bytes: usize,
        parity: &mut [u8],
    ) -> Result<(), CodecError> {
        self.check_group(data.len(), chunk_bytes, parity.len())?;
        let data: Vec<_> = data.chunks(chunk_bytes).collect();
        let mut parity: Vec<_> = parity.chunks_exact_mut(chunk_bytes).collect();
        self.sum(0, &data, &mut parity, Start::Zero);
        Ok(())
    }

    /// Like [`Self::encode`], but each chunk has its own slice. All data chunks have the length of
    /// the parity chunks, except that the last data chunk can be shorter.
    ///
    /// # Errors
    /// If the numbers or lengths of chunks do not match the code or each other.
    pub fn encode_chunks(
        &self,
        data: &[&[u8]],
        parity: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        let chunk_bytes = parity.first().map_or(0, |chunk| chunk.len());
        self.check_chunks(data.iter().map(|chunk| chunk.len()), chunk_bytes)?;
        self.check_parity(
            data.len(),
            parity.iter().map(|chunk| Some(chunk.len())),
            chunk_bytes,
        )?;
        self.sum(0, data, parity, Start::Zero);
        Ok(())
    }

    /// Rebuilds in place the data chunks of one group that are not `present`. `data` and `parity`
    /// are laid out as in [`Self::encode`]. Chunks that are not present are not read. A missing
    /// short last chunk is rebuilt at its own length.
    ///
    /// # Errors
    /// If the lengths do not match the code or each other, or if more chunks are lost than the code
    /// can repair.
    pub fn recover(
        &self,
        data: &mut [u8],
        parity: &[u8],
        chunk_bytes: usize,
        present: &Present,
    ) -> Result<(), CodecError> {
        self.check_group(data.len(), chunk_bytes, parity.len())?;
        self.check_recoverable(data.len().div_ceil(chunk_bytes), present)?;
        let data: Vec<_> = data.chunks_mut(chunk_bytes).collect();
        let parity: Vec<_> = parity.chunks_exact(chunk_bytes).collect();
        repair::repair(self, data, &parity, present);
        Ok(())
    }

    /// Like [`Self::recover`], but each chunk has its own slice. The slice of a parity chunk that
    /// is not present can be empty.
    ///
    /// # Errors
    /// If the numbers or lengths of chunks do not match the code or each other, or if more chunks
    /// are lost than the code can repair.
    pub fn recover_chunks(
        &self,
        data: &mut [&mut [u8]],
        parity: &[&[u8]],
        present: &Present,
    ) -> Result<(), CodecError> {
        let lengths = data.iter().map(|chunk| chunk.len());
        let there = |chunk: usize| present.parity.contains(chunk);
        let lent = (0..parity.len()).find(|&chunk| there(chunk));
        // Without parity the chunk length comes from the data. The call still succeeds if no data
        // is missing.
        let chunk_bytes = match lent {
            Some(chunk) => parity[chunk].len(),
            None => lengths.clone().max().unwrap_or(0),
        };
        self.check_chunks(lengths, chunk_bytes)?;
        let parity_lengths = parity
            .iter()
            .enumerate()
            .map(|(chunk, bytes)| there(chunk).then_some(bytes.len()));
        self.check_parity(data.len(), parity_lengths, chunk_bytes)?;
        self.check_recoverable(data.len(), present)?;
        let data = data.iter_mut().map(|chunk| &mut **chunk).collect();
        repair::repair(self, data, parity, present);
        Ok(())
    }

    /// Adds the data chunks from index `first` on to the parity. `start` is the initial value of
    /// the sums.
    pub(crate) fn sum(&self, first: usize, data: &[&[u8]], parity: &mut [&mut [u8]], start: Start) {
        match &self.arithmetic {
            Arithmetic::Mds(matrix) if first == 0 => {
                self.kernel.multiply(matrix, data, parity, start);
            }
            Arithmetic::Mds(matrix) => {
                let part = Matrix::from_fn(parity.len(), data.len(), |row, column| {
                    matrix.at(row, first + column)
                });
                self.kernel.multiply(&part, data, parity, start);
            }
            Arithmetic::Xor => {
                let m = self.code.m();
                for (row, parity) in parity.iter_mut().enumerate() {
                    // Offset in `data` of the first chunk that this parity chunk covers.
                    let skip = (row + m - first % m) % m;
                    let covered: Vec<_> = data.iter().copied().skip(skip).step_by(m).collect();
                    if start == Start::Zero || !covered.is_empty() {
                        self.kernel.add(&covered, parity, start);
                    }
                }
            }
        }
    }

    /// Checks the lengths of a group whose chunks are contiguous.
    pub(crate) fn check_group(
        &self,
        data_bytes: usize,
        chunk_bytes: usize,
        parity_bytes: usize,
    ) -> Result<(), CodecError> {
        if chunk_bytes == 0 {
            return Err(CodecError::EmptyChunks);
        }
        let most = self.code.k().saturating_mul(chunk_bytes);
        if data_bytes == 0 || data_bytes > most {
            return Err(CodecError::DataBytes {
                given: data_bytes,
                most,
            });
        }
        let chunks = self.code.parity_chunks(data_bytes.div_ceil(chunk_bytes));
        let expected = chunks.saturating_mul(chunk_bytes);
        if parity_bytes != expected {
            return Err(CodecError::ParityBytes {
                given: parity_bytes,
                expected,
            });
        }
        Ok(())
    }

    fn check_chunks(
        &self,
        lengths: impl ExactSizeIterator<Item = usize>,
        chunk_bytes: usize,
    ) -> Result<(), CodecError> {
        let chunks = lengths.len();
        if chunks == 0 || chunks > self.code.k() {
            return Err(CodecError::DataChunks {
                given: chunks,
                code: self.code,
            });
        }
        if chunk_bytes == 0 {
            return Err(CodecError::EmptyChunks);
        }
        for (chunk, given) in lengths.enumerate() {
            let short = chunk + 1 == chunks && (1..chunk_bytes).contains(&given);
            if given != chunk_bytes && !short {
                return Err(CodecError::DataChunkBytes {
                    chunk,
                    given,
                    expected: chunk_bytes,
                });
            }
        }
        Ok(())
    }

    /// Checks the parity chunks. A length of `None` is not checked.
    fn check_parity(
        &self,
        data_chunks: usize,
        lengths: impl ExactSizeIterator<Item = Option<usize>>,
        chunk_bytes: usize,
    ) -> Result<(), CodecError> {
        let expected = self.code.parity_chunks(data_chunks);
        if lengths.len() != expected {
            return Err(CodecError::ParityChunks {
                given: lengths.len(),
                expected,
            });
        }
        for (chunk, given) in lengths.enumerate() {
            match given {
                Some(given) if given != chunk_bytes => {
                    return Err(CodecError::ParityChunkBytes {
                        chunk,
                        given,
                        expected: chunk_bytes,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(crate) fn check_recoverable(
        &self,
        data_chunks: usize,
        present: &Present,
    ) -> Result<(), CodecError> {
        if self.code.recoverable(data_chunks, present) {
            return Ok(());
        }
        let all = Present::all(self.code, data_chunks);
        Err(CodecError::NotRecoverable {
            code: self.code,
            missing: present.data.missing(data_chunks).len(),
            parity: all.parity.and(&present.parity).len(),
        })
    }
}
