//! Reads memory without other work. A code reads the same memory, so this is about the upper bound
//! of its speed.
#![allow(unsafe_code)]

use std::fmt;

/// A way of reading chunks in order. The fastest way depends on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    /// Portable code of the compiler.
    Plain,
    /// In vectors of 64 bytes.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// Vectors of 64 bytes, with a prefetch this number of bytes ahead.
    #[cfg(target_arch = "x86_64")]
    Ahead(usize),
}

impl Loop {
    /// The ways that this machine supports.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let wide = std::is_x86_feature_detected!("avx512f");
        let loops = [
            Some(Self::Plain),
            #[cfg(target_arch = "x86_64")]
            wide.then_some(Self::Avx512),
            #[cfg(target_arch = "x86_64")]
            wide.then_some(Self::Ahead(1024)),
            #[cfg(target_arch = "x86_64")]
            wide.then_some(Self::Ahead(4096)),
        ];
        loops.into_iter().flatten()
    }

    /// Reads bytes. Returns the OR of all words, so that the compiler cannot omit a read.
    pub(crate) fn read(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Plain => or_of(bytes),
            // SAFETY: made by `available` alone, where the machine has AVX-512.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { wide::<0>(bytes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Ahead(1024) => unsafe { wide::<1024>(bytes) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Ahead(_) => unsafe { wide::<4096>(bytes) },
        }
    }
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("plain"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => f.write_str("AVX-512"),
            #[cfg(target_arch = "x86_64")]
            Self::Ahead(bytes) => write!(f, "AVX-512, {bytes} bytes ahead"),
        }
    }
}

fn or_of(bytes: &[u8]) -> u64 {
    let mut sums = [0; 16];
    let (lines, rest) = bytes.as_chunks::<128>();
    for line in lines {
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum |= u64::from_ne_bytes(*word);
        }
    }
    let rest = rest.iter().fold(0, |sum, &byte| sum | u64::from(byte));
    sums.into_iter().fold(rest, |sum, word| sum | word)
}

/// Reads eight vectors at a time into independent accumulators.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn wide<const AHEAD: usize>(bytes: &[u8]) -> u64 {
    use std::arch::x86_64::{
        _MM_HINT_T0, _mm_prefetch, _mm512_loadu_si512, _mm512_or_si512, _mm512_reduce_or_epi64,
        _mm512_setzero_si512,
    };
    let mut sums = [_mm512_setzero_si512(); 8];
    let (blocks, rest) = bytes.as_chunks::<512>();
    for block in blocks {
        let (lines, _) = block.as_chunks::<64>();
        for (sum, line) in sums.iter_mut().zip(lines) {
            let at = line.as_ptr();
            // SAFETY: it is a line; asking for what may not be there does nothing.
            let line = unsafe {
                if AHEAD > 0 {
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
                }
                _mm512_loadu_si512(at.cast())
            };
            *sum = _mm512_or_si512(*sum, line);
        }
    }
    let sum = sums
        .into_iter()
        .fold(_mm512_setzero_si512(), |a, b| _mm512_or_si512(a, b));
    or_of(rest) | _mm512_reduce_or_epi64(sum).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_read() {
        for way in Loop::available() {
            for bytes in [1, 100, 511, 512, 1500] {
                let mut memory = vec![0; bytes];
                assert_eq!(way.read(&memory), 0, "{way}");
                for at in 0..bytes {
                    memory[at] = 1;
                    assert_ne!(way.read(&memory), 0, "{way}: byte {at} of {bytes}");
                    memory[at] = 0;
                }
            }
        }
    }
}
