//! docs
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

    /// Transforms a tensor, segment by segment, and interleaves the coefficients. `segment_ends` has
    /// the element at which each segment ends; the last is the length of the tensor. For a tensor
    /// that is not cut it is `&[values.len()]`.
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

    /// Undoes [`Self::encode`] as far as packets have arrived: `arrived(segment, packet)` says which.
    /// What is missing is set to zero in `encoded`, whatever was there, and the rest counts for more,
    /// as `rescale` says. The [module](self) has the error that is left.
    ///
    /// # Errors
    /// As for [`Self::encode`], and if the share of [`Rescale::ByShare`] is not above 0 and at most 1.
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
    /// For an output of so many elements.
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

    /// So many floats, from a line's beginning on.
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
