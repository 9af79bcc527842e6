//! Block Walsh-Hadamard transform with stride: a lost packet becomes a small error of many values
//! instead of a hole (`OptiNIC`, section 3.2).
//!
//! A tensor is cut into blocks of `n` elements, and each block is multiplied by the Hadamard matrix
//! of that size, divided by `sqrt(n)`. The matrix is orthonormal and its own inverse. It is linear,
//! so encoded tensors can be added up, and the sum is decoded once. An [`Interleave`] deals the
//! coefficients out to packets, and a [`Transform`] does the work.
//!
//! ```
//! use farwrite_codes::hadamard::{Interleave, Rescale, Transform};
//!
//! // Blocks of 1024 values; packets of 4096 bytes, of which each carries a value of 1024 blocks.
//! let packet = Interleave::packet_elements(4096, size_of::<f32>()).unwrap();
//! let transform = Transform::new(Interleave::new(1024, packet, packet)?);
//! let gradient: Vec<f32> = (0..1 << 20).map(|i| (i as f32).sin()).collect();
//! let mut encoded = vec![0.0; gradient.len()];
//! transform.encode(&gradient, &mut encoded, &[gradient.len()])?;
//!
//! // Packet 7 does not arrive.
//! let mut estimate = vec![0.0; gradient.len()];
//! let arrived = |_segment, packet| packet != 7;
//! let ends = [gradient.len()];
//! transform.decode_partial(&mut encoded, &mut estimate, &ends, arrived, Rescale::ByArrived)?;
//! assert!(gradient.iter().zip(&estimate).all(|(a, b)| (a - b).abs() < 0.3));
//! # Ok::<(), farwrite_codes::hadamard::TransformError>(())
//! ```
//!
//! # Which coefficient travels where
//!
//! A packet carries `p` elements, `p/S` of each of `S` blocks, where `S` is the stride. The paper
//! has the NIC gather them. Here a write lands contiguously, so the order of the encoded tensor is
//! that of the packets, and encoding and decoding permute. `S` blocks are a *group*: a matrix of
//! runs of `r = p/S` coefficients, one block a row, which is sent column by column. Blocks of 8 in
//! packets of 4 with stride 2, `r` = 2:
//!
//! ```text
//!            blocks                           encoded
//!   a: | a0 a1 | a2 a3 | a4 a5 | a6 a7 |      packet 0:  a0 a1  b0 b1
//!   b: | b0 b1 | b2 b3 | b4 b5 | b6 b7 |      packet 1:  a2 a3  b2 b3
//!                                             packet 2:  a4 a5  b4 b5
//!                                             packet 3:  a6 a7  b6 b7
//! ```
//!
//! Coefficient `i` of block `b` of a group of `k` blocks lies at `(i / r * k + b) * r + i % r`. A
//! block is spread over `n/r` packets. A lost packet takes `r` coefficients of each of `S` blocks,
//! and the inverse spreads these over each block: a single coefficient `y` becomes an error of `|y|
//! / sqrt(n)` in every element. With stride 1 the order does not change; then blocks larger than a
//! packet are spread over `n/p` packets, and smaller ones are lost whole. If `S n <= p`, whole
//! blocks fit a packet's share, and the order does not change either.
//!
//! A collective that works on segments (a ring) passes where they end. Groups do not cross
//! segments, and packets are counted from the beginning of each.
//!
//! **The end of a segment.** Nothing is padded. The last group has as many whole blocks as are
//! left, by the same formula with a smaller `k`, so its packets carry more of each block. What is
//! less than a block becomes blocks of descending powers of two, which are not interleaved. Of
//! these fewer than `n` elements, blocks of at most `p` elements can be lost whole; make segments
//! multiples of `n` if that matters.
//!
//! # What is left after losses
//!
//! Let `x` be the values of a group, `K` its packets and `k` of them arrive. Coefficients that did
//! not arrive count as zero, the others are multiplied by a factor (see [`Rescale`]) before the
//! inverse. The estimate `e` is then the transform of coefficients of which each is right but for
//! its factor or zero, and the transform keeps lengths, so:
//!
//! | | factor | mean of `e` | mean of `|e - x|^2`, in `|x|^2` |
//! |---|---|---|---|
//! | [`ByShare`](Rescale::ByShare)`(q)` | `1/q` | `x` | `(1 - q) / q` |
//! | [`ByArrived`](Rescale::ByArrived) | `K/k` | `x`, if `k > 0` | of `(K - k) / k`; 1 if `k = 0` |
//! | [`Never`](Rescale::Never) | 1 | `q x` | `1 - q` |
//!
//! `ByShare` and `Never` are exact for every process in which each packet arrives with probability
//! `q`: bursts do not change the means, only how much single tensors differ from them. `ByArrived`
//! has the mean `x` if all sets of `k` packets are equally likely, as with independent losses; its
//! error is exact for each single loss if the group's packets carry equal energy, and on average
//! otherwise. Bursts hit the ends of a group more often than its middle when they hit it in part,
//! which leaves a bias: its energy is below a thousandth of the tensor's in groups of 64 packets,
//! with 10% lost in bursts of 8.
//!
//! The stride is not in the table. It does not change the mean error of a tensor; it decides
//! whether this error is a few blocks that are gone or a little of every block. Where a tensor's
//! energy is in few coefficients, a loss can still be large: with a large mean value, coefficient 0
//! of each block has most of it, and with the largest stride one packet carries all of them.
//! Subtract the mean, or flip signs by a pattern that both ends know, before encoding such tensors.
//!
//! # Rounding
//!
//! All kernels give the same bits: they scale first and then take the levels in one order. Sums are
//! in `f32`. Let `u` be half the distance from 1 to the next value of a format: `2^-24` for `f32`,
//! `2^-11` for `f16`, `2^-8` for `bf16`. The error of one transform of a block `x` is at most
//!
//! ```text
//!   ((log2(n) + 3) u_f32 + u) |x|  +  half the smallest positive value of the format, times sqrt(n)
//! ```
//!
//! For `f32` no intermediate value overflows unless the result can. A coefficient can be `sqrt(n)`
//! times as large as the largest value, so `f16` values above `65504 / sqrt(n)` can become infinite.
//!
//! # Speed
//!
//! No transform can be faster than copying: it reads and writes every byte once. On one core of a
//! shared Xeon with AVX-512, 128 MiB in cold memory, 6.1 GB/s of copying, in shares of memcpy:
//!
//! | blocks of 1024 | stride 1 | stride `p`, packets of 4096 bytes |
//! |---|---|---|
//! | `f32` | 0.97 | 0.36 to 0.41 |
//! | `f16` | 0.69 | 0.25 |
//! | `bf16` | 0.68 | 0.25 |
//!
//! In `f32` and stride 1 memory is the limit. 16-bit formats have twice the additions for each byte
//! (a block of 1024 takes 0.23 us in the cache, copying its 2 KiB 0.33 us). With the largest stride
//! the pieces of a band of 256 blocks are 1 KiB (512 bytes in 16-bit formats), each in another page
//! of 4 KiB, and the translation of addresses is the limit.
//!
//! Blocks beyond 4096 elements are transformed in memory of their own, four bytes an element: up to
//! 2^19 elements with one more pass over it, beyond with two. The 128 MiB as one block take 146 ms,
//! as 4, 16 and 64 blocks 84, 60 and 38 ms (`OptiNIC`'s GPU: 22.1, 19.9, 17.5 and 8.4 ms, Table 3).
//! A stride is for small blocks: those beyond 2^17 elements are interleaved one by one, run by run.
//!
//! `cargo run --release -p farwrite-bench --features isal --bin codes` prints these numbers.

mod element;
mod error;
mod interleave;
mod kernel;
mod loss;
mod weave;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub use element::Element;
pub use error::TransformError;
pub use interleave::Interleave;
pub use loss::Rescale;

use crate::kernel::{Kernel, LINE, STREAM_BYTES, Stores};

/// Floats that are transformed and then written, while they are in the nearest cache.
const TILE: usize = 1 << 12;

/// A block Walsh-Hadamard transform with interleaving, and the instructions that do it.
#[derive(Clone, Copy, Debug)]
pub struct Transform {
    interleave: Interleave,
    kernel: Kernel,
}

impl Transform {
    /// With the fastest kernel of this machine.
    pub fn new(interleave: Interleave) -> Self {
        Self::with_kernel(interleave, Kernel::best())
    }

    /// With a kernel of choice. All give the same bits.
    pub const fn with_kernel(interleave: Interleave, kernel: Kernel) -> Self {
        Self { interleave, kernel }
    }

    /// How coefficients are dealt out to packets.
    pub const fn interleave(&self) -> Interleave {
        self.interleave
    }

    /// Transforms a tensor, segment by segment, and interleaves the coefficients. `segment_ends`
    /// has the element at which each segment ends; the last is the length of the tensor. For a
    /// tensor that is not cut it is `&[values.len()]`.
    ///
    /// # Errors
    /// Both slices do not have one length, or the segments do not fill it.
    pub fn encode<T: Element>(
        &self,
        values: &[T],
        encoded: &mut [T],
        segment_ends: &[usize],
    ) -> Result<(), TransformError> {
        let segments = segments(values.len(), encoded.len(), segment_ends)?;
        let mut place = Place::new::<T>(values.len());
        for segment in segments {
            let (values, encoded) = (&values[segment.clone()], &mut encoded[segment]);
            for part in self.interleave.parts(values.len()) {
                let range = part.range.clone();
                let (values, encoded) = (&values[range.clone()], &mut encoded[range]);
                if part.run == part.block {
                    self.plain(values, encoded, part.block, 1.0, &mut place);
                } else {
                    self.encode_group(values, encoded, &part, &mut place);
                }
            }
        }
        self.kernel.end_stream(place.stores);
        Ok(())
    }

    /// Undoes [`Self::encode`]: all packets have arrived.
    ///
    /// # Errors
    /// As for [`Self::encode`].
    pub fn decode<T: Element>(
        &self,
        encoded: &[T],
        values: &mut [T],
        segment_ends: &[usize],
    ) -> Result<(), TransformError> {
        let segments = segments(encoded.len(), values.len(), segment_ends)?;
        let mut place = Place::new::<T>(values.len());
        for segment in segments {
            let (encoded, values) = (&encoded[segment.clone()], &mut values[segment]);
            self.decode_segment(encoded, values, |_| 1.0, &mut place);
        }
        self.kernel.end_stream(place.stores);
        Ok(())
    }

    /// Undoes [`Self::encode`] as far as packets have arrived: `arrived(segment, packet)` says
    /// which. What is missing is set to zero in `encoded`, whatever was there, and the rest counts
    /// for more, as `rescale` says. The [module](self) has the error that is left.
    ///
    /// # Errors
    /// As for [`Self::encode`], and if the share of [`Rescale::ByShare`] is not above 0 and at most
    /// 1.
    pub fn decode_partial<T: Element>(
        &self,
        encoded: &mut [T],
        values: &mut [T],
        segment_ends: &[usize],
        arrived: impl Fn(usize, usize) -> bool,
        rescale: Rescale,
    ) -> Result<(), TransformError> {
        let segments = segments(encoded.len(), values.len(), segment_ends)?;
        rescale.check()?;
        let mut place = Place::new::<T>(values.len());
        for (index, segment) in segments.enumerate() {
            let (encoded, values) = (&mut encoded[segment.clone()], &mut values[segment]);
            let factors = loss::clear(
                encoded,
                &self.interleave,
                |packet| arrived(index, packet),
                rescale,
            );
            let factor = |group: usize| factors[group];
            self.decode_segment(encoded, values, factor, &mut place);
        }
        self.kernel.end_stream(place.stores);
        Ok(())
    }

    /// The part of [`Self::decode_partial`] that precedes the inverse: what is missing is set to zero
    /// in `encoded`, and the rest is multiplied as `rescale` says. So tensors of which different
    /// packets have arrived can be added up, and the sum goes to [`Self::decode`].
    ///
    /// # Errors
    /// As for [`Self::decode_partial`].
    pub fn rescale<T: Element>(
        &self,
        encoded: &mut [T],
        segment_ends: &[usize],
        arrived: impl Fn(usize, usize) -> bool,
        rescale: Rescale,
    ) -> Result<(), TransformError> {
        let segments = segments(encoded.len(), encoded.len(), segment_ends)?;
        rescale.check()?;
        for (index, segment) in segments.enumerate() {
            let encoded = &mut encoded[segment];
            let arrived = |packet| arrived(index, packet);
            let factors = loss::clear(encoded, &self.interleave, arrived, rescale);
            let groups = encoded.chunks_mut(self.interleave.group());
            for (group, factor) in groups.zip(factors).filter(|(_, factor)| *factor > 1.0) {
                for value in group {
                    *value = T::from_f32(value.to_f32() * factor);
                }
            }
        }
        Ok(())
    }

    fn decode_segment<T: Element>(
        &self,
        encoded: &[T],
        values: &mut [T],
        factor: impl Fn(usize) -> f32,
        place: &mut Place,
    ) {
        let group = self.interleave.group();
        for part in self.interleave.parts(values.len()) {
            let mut start = part.range.start;
            while start < part.range.end {
                // Groups with one factor are one piece, if they are not interleaved.
                let value = factor(start / group);
                let mut end = part
                    .range
                    .end
                    .min((start / group + 1).saturating_mul(group));
                while part.run == part.block
                    && end < part.range.end
                    && factor(end / group).to_bits() == value.to_bits()
                {
                    end = part.range.end.min(end + group);
                }
                let (encoded, values) = (&encoded[start..end], &mut values[start..end]);
                if part.run == part.block {
                    self.plain(encoded, values, part.block, value, place);
                } else {
                    self.decode_group(encoded, values, &part, value, place);
                }
                start = end;
            }
        }
    }

    /// Transforms blocks that stay where they are.
    fn plain<T: Element>(
        &self,
        source: &[T],
        target: &mut [T],
        block: usize,
        factor: f32,
        place: &mut Place,
    ) {
        let (step, stores) = (block.max(TILE), place.stores);
        let floats = place.floats(step.min(source.len()));
        for (source, target) in source.chunks(step).zip(target.chunks_mut(step)) {
            let floats = &mut floats[..source.len()];
            self.kernel
                .transform(source, floats, block, scale(block) * factor);
            self.kernel.round(floats, target, stores);
        }
    }
}

/// Memory for floats between reading and writing, and how the latter is done.
struct Place {
    memory: Vec<f32>,
    stores: Stores,
}

impl Place {
    /// For an output of this number of elements.
    fn new<T>(elements: usize) -> Self {
        let large = elements.saturating_mul(size_of::<T>()) >= STREAM_BYTES;
        Self {
            memory: Vec::new(),
            stores: match cfg!(target_arch = "x86_64") && large {
                true => Stores::Streamed,
                false => Stores::Cached,
            },
        }
    }

    /// `count` floats, which begin where a line begins.
    fn floats(&mut self, count: usize) -> &mut [f32] {
        if self.memory.len() < count + kernel::LINE {
            self.memory = vec![0.0; count + kernel::LINE];
        }
        let skip = self.memory.as_ptr().align_offset(LINE).min(kernel::LINE);
        &mut self.memory[skip..][..count]
    }
}

/// `1 / sqrt(block)`, with which the transform is orthonormal: exact for even powers of two.
fn scale(block: usize) -> f32 {
    let levels = block.ilog2();
    let power = f32::from_bits((127 - levels / 2) << 23);
    match levels.is_multiple_of(2) {
        true => power,
        false => power * core::f32::consts::FRAC_1_SQRT_2,
    }
}

/// The ranges of all segments.
fn segments(
    input: usize,
    output: usize,
    ends: &[usize],
) -> Result<impl Iterator<Item = Range<usize>>, TransformError> {
    if input != output {
        return Err(TransformError::Lengths { input, output });
    }
    let starts = || core::iter::once(0).chain(ends.iter().copied());
    let ranges = move || starts().zip(ends).map(|(start, &end)| start..end);
    let wrong = ranges().position(|range| range.start > range.end || range.end > input);
    let (segment, end) = match (wrong, ends.last()) {
        (Some(segment), _) => (segment, ends[segment]),
        (None, last) => (ends.len(), last.copied().unwrap_or(0)),
    };
    if wrong.is_some() || end != input {
        return Err(TransformError::Segment {
            segment,
            end,
            elements: input,
        });
    }
    Ok(ranges())
}
