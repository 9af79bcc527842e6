//! Block Walsh-Hadamard transform with stride: a lost packet causes a small error in many values
//! instead of a hole (`OptiNIC`, section 3.2).
//!
//! The transform cuts a tensor into blocks of `n` elements and multiplies each block by the
//! Hadamard matrix of size `n`, divided by `sqrt(n)`. This matrix is orthonormal and its own
//! inverse. The transform is linear, so a collective can add encoded tensors and decode the sum
//! once. An [`Interleave`] assigns the coefficients to packets. A [`Transform`] encodes and
//! decodes.
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
//! A packet carries `p` elements: `p/S` coefficients of each of `S` blocks, where `S` is the
//! stride. In the paper the NIC gathers them from memory. Here an RDMA write is contiguous, so the
//! encoded tensor holds the coefficients in the order of the packets, and encoding and decoding
//! permute them. `S` blocks form a *group*. A group is a matrix with one block per row, cut into
//! runs of `r = p/S` coefficients. The encoded tensor holds the runs column by column. Example with
//! blocks of 8, packets of 4 and stride 2, so `r` = 2:
//!
//! ```text
//!            blocks                           encoded
//!   a: | a0 a1 | a2 a3 | a4 a5 | a6 a7 |      packet 0:  a0 a1  b0 b1
//!   b: | b0 b1 | b2 b3 | b4 b5 | b6 b7 |      packet 1:  a2 a3  b2 b3
//!                                             packet 2:  a4 a5  b4 b5
//!                                             packet 3:  a6 a7  b6 b7
//! ```
//!
//! In a group of `k` blocks, coefficient `i` of block `b` has the position
//! `(i / r * k + b) * r + i % r`. A block is spread over `n/r` packets. A lost packet takes `r`
//! coefficients of each of `S` blocks. The inverse transform spreads them over each block: a lost
//! coefficient `y` causes an error of `|y| / sqrt(n)` in every element. With stride 1 the order
//! does not change: a block larger than a packet is spread over `n/p` packets, and a smaller block
//! is lost with its packet. If `S n <= p`, a packet holds whole blocks, and the order does not
//! change either.
//!
//! A collective that works on segments (a ring) passes the ends of the segments. Groups do not
//! cross segments, and packet numbers begin at 0 in each segment.
//!
//! **The end of a segment.** Nothing is padded. The last group has the whole blocks that are left.
//! The same formula applies with a smaller `k`, so its packets carry more coefficients of each
//! block. The remaining elements, fewer than `n`, form blocks of descending powers of two, which
//! are not interleaved. A block of at most `p` of these elements can be lost as a whole. Make
//! segments multiples of `n` if that matters.
//!
//! # The error after losses
//!
//! Let `x` be the values of a group. The group has `K` packets, of which `k` arrive. Each
//! coefficient that did not arrive counts as zero. The others are multiplied by a factor (see
//! [`Rescale`]) before the inverse transform. The inverse transform preserves norms, so the
//! estimate `e` has the same error as the coefficients:
//!
//! | | factor | mean of `e` | mean of `|e - x|^2`, in `|x|^2` |
//! |---|---|---|---|
//! | [`ByShare`](Rescale::ByShare)`(q)` | `1/q` | `x` | `(1 - q) / q` |
//! | [`ByArrived`](Rescale::ByArrived) | `K/k` | `x`, if `k > 0` | of `(K - k) / k`; 1 if `k = 0` |
//! | [`Never`](Rescale::Never) | 1 | `q x` | `1 - q` |
//!
//! `ByShare` and `Never` are exact for every loss process in which each packet arrives with
//! probability `q`. Loss bursts do not change these means, only the variance between tensors.
//! `ByArrived` has the mean `x` if all sets of `k` packets are equally likely, as with independent
//! losses. Its error is exact for every set of lost packets if all packets of the group carry equal
//! energy, and holds on average otherwise. A burst that hits only a part of a group is more likely
//! to hit its ends than its middle, which causes a bias. With groups of 64 packets and 10% loss in
//! bursts of 8, the energy of this bias is below a thousandth of the tensor's energy.
//!
//! The stride is not in the table because it does not change the mean error of a tensor. It decides
//! whether a loss removes a few whole blocks or causes a small error in every block. A loss can
//! still be large if few coefficients carry most of the tensor's energy. For example, if the values
//! have a large mean, coefficient 0 of each block carries most of the energy, and with the largest
//! stride one packet carries all of these coefficients. Before encoding such a tensor, subtract the
//! mean, or flip signs by a pattern that both ends know.
//!
//! # Rounding
//!
//! All kernels return the same bits: they multiply by the scale first and then compute the levels
//! in the same order. Sums are in `f32`. Let `u` be half the distance from 1 to the next value of a
//! format: `2^-24` for `f32`, `2^-11` for `f16`, `2^-8` for `bf16`. The error of one transform of a
//! block `x` is at most
//!
//! ```text
//!   ((log2(n) + 3) u_f32 + u) |x|  +  half the smallest positive value of the format, times sqrt(n)
//! ```
//!
//! With `f32`, an intermediate value overflows only if the result can overflow. A coefficient can
//! be `sqrt(n)` times as large as the largest value, so `f16` values above `65504 / sqrt(n)` can
//! become infinite.
//!
//! # Speed
//!
//! A transform cannot be faster than a copy: it reads and writes every byte at least once. The
//! table shows the throughput as a fraction of memcpy's: 128 MiB in cold memory, one core with
//! AVX-512. The Xeon is shared, and its memcpy has 6.1 GB/s. The EPYC's memcpy has 17.9 GB/s.
//!
//! | blocks of 1024 | machine | stride 1 | stride `p`, packets of 4096 bytes |
//! |---|---|---|---|
//! | `f32` | Xeon | 0.97 | 0.36 to 0.41 |
//! | `f32` | EPYC | 0.67 | 0.40 |
//! | `f16` | Xeon | 0.69 | 0.25 |
//! | `bf16` | Xeon | 0.68 | 0.25 |
//!
//! With `f32` and stride 1, memory bandwidth is the limit on the Xeon, but not on the EPYC. 16-bit
//! formats need twice as many additions per byte: on the Xeon, a block of 1024 takes 0.23 us in the
//! cache, and copying its 2 KiB takes 0.33 us. With the largest stride, the band of 256 blocks
//! writes pieces of 1 KiB (512 bytes in 16-bit formats), each to another 4 KiB page, and address
//! translation is the limit.
//!
//! A block of more than 4096 elements is transformed in a buffer of four bytes per element. Up to
//! 2^19 elements this takes one more pass over the buffer, beyond that two. The 128 MiB as 1, 4, 16
//! and 64 blocks take 146, 84, 60 and 38 ms on the Xeon, and 88, 48, 24 and 20 ms on the EPYC
//! (`OptiNIC`'s GPU: 22.1, 19.9, 17.5 and 8.4 ms, Table 3). A stride is useful for small blocks.
//! Blocks of more than 2^17 elements are interleaved one at a time, run by run.
//!
//! `cargo run --release -p farwrite-bench --features isal --bin codes` prints the numbers of the
//! Xeon, and `make -C lab figures-optinic` writes those of the EPYC to `lab/figures/optinic/splits.csv`.

mod element;
mod error;
mod group_transform;
mod interleave;
mod kernel;
mod loss;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

pub use element::Element;
pub use error::TransformError;
pub use interleave::Interleave;
pub use loss::Rescale;

use crate::kernel::{Kernel, LINE, STREAM_BYTES, Stores};

/// Minimum number of floats to transform before they are written to the output. They stay in the
/// nearest cache in between.
const TILE: usize = 1 << 12;

/// A block Walsh-Hadamard transform with interleaving, and the kernel that computes it.
#[derive(Clone, Copy, Debug)]
pub struct Transform {
    interleave: Interleave,
    kernel: Kernel,
}

impl Transform {
    /// Makes a transform with the fastest kernel of this machine.
    pub fn new(interleave: Interleave) -> Self {
        Self::with_kernel(interleave, Kernel::best())
    }

    /// Makes a transform with the given kernel. All kernels return the same bits.
    pub const fn with_kernel(interleave: Interleave, kernel: Kernel) -> Self {
        Self { interleave, kernel }
    }

    /// Returns how coefficients are assigned to packets.
    pub const fn interleave(&self) -> Interleave {
        self.interleave
    }

    /// Transforms a tensor segment by segment and interleaves the coefficients. `segment_ends` has
    /// the index of the element at which each segment ends. The last one is the length of the
    /// tensor. Pass `&[values.len()]` for a tensor that is a single segment.
    ///
    /// # Errors
    /// If the slices differ in length, or if the segments do not cover them.
    pub fn encode<T: Element>(
        &self,
        values: &[T],
        encoded: &mut [T],
        segment_ends: &[usize],
    ) -> Result<(), TransformError> {
        let segments = segments(values.len(), encoded.len(), segment_ends)?;
        let mut place = Scratch::new::<T>(values.len());
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

    /// Inverts [`Self::encode`] when all packets have arrived.
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
        let mut place = Scratch::new::<T>(values.len());
        for segment in segments {
            let (encoded, values) = (&encoded[segment.clone()], &mut values[segment]);
            self.decode_segment(encoded, values, |_| 1.0, &mut place);
        }
        self.kernel.end_stream(place.stores);
        Ok(())
    }

    /// Inverts [`Self::encode`] when some packets are missing. `arrived(segment, packet)` returns
    /// whether a packet has arrived. The elements of missing packets are set to zero in `encoded`,
    /// and the others are multiplied as `rescale` says. The [module](self) documents the remaining
    /// error.
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
        let mut place = Scratch::new::<T>(values.len());
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

    /// Does the part of [`Self::decode_partial`] that precedes the inverse transform: sets the
    /// elements of missing packets to zero in `encoded`, and multiplies the others as `rescale`
    /// says. Tensors with different missing packets can then be added, and [`Self::decode`] decodes
    /// the sum.
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
        place: &mut Scratch,
    ) {
        let group = self.interleave.group();
        for part in self.interleave.parts(values.len()) {
            let mut start = part.range.start;
            while start < part.range.end {
                // If the part is not interleaved, consecutive groups with the same factor are
                // decoded in one call.
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

    /// Transforms blocks that are not interleaved.
    fn plain<T: Element>(
        &self,
        source: &[T],
        target: &mut [T],
        block: usize,
        factor: f32,
        place: &mut Scratch,
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

/// A buffer for floats between input and output, and the kind of stores for the output.
struct Scratch {
    memory: Vec<f32>,
    stores: Stores,
}

impl Scratch {
    /// Makes a buffer for an output of `elements` elements. A large output gets streaming stores.
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

    /// Returns `count` floats that begin at a cache line.
    fn floats(&mut self, count: usize) -> &mut [f32] {
        if self.memory.len() < count + kernel::LINE {
            self.memory = vec![0.0; count + kernel::LINE];
        }
        let skip = self.memory.as_ptr().align_offset(LINE).min(kernel::LINE);
        &mut self.memory[skip..][..count]
    }
}

/// Returns `1 / sqrt(block)`, which makes the transform orthonormal. The value is exact for even
/// powers of two.
fn scale(block: usize) -> f32 {
    let levels = block.ilog2();
    let power = f32::from_bits((127 - levels / 2) << 23);
    match levels.is_multiple_of(2) {
        true => power,
        false => power * core::f32::consts::FRAC_1_SQRT_2,
    }
}

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
