//! Handles packets that did not arrive.

use alloc::vec::Vec;

use super::element::Element;
use super::{Interleave, TransformError};

/// How much more the coefficients that arrived count, so that the estimate is unbiased. The
/// [module](super) has the mathematics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rescale {
    /// Each group by what arrived of it: by its elements, divided by those that arrived. It needs
    /// no knowledge of the path. A group of which nothing arrived becomes zero.
    ByArrived,
    /// All groups by `1 / share`, where `share` is the probability that a packet arrives.
    ByShare(f32),
    /// Not at all: the estimate of the least mean square error among these, but biased towards
    /// zero.
    Never,
}

impl Rescale {
    pub(super) fn check(self) -> Result<(), TransformError> {
        match self {
            Self::ByShare(given) if !(given > 0.0 && given <= 1.0) => {
                Err(TransformError::Share { given })
            }
            _ => Ok(()),
        }
    }
}

/// Sets the elements of a segment that did not arrive to zero. Returns the factor of each group.
pub(super) fn clear<T: Element>(
    encoded: &mut [T],
    interleave: &Interleave,
    arrived: impl Fn(usize) -> bool,
    rescale: Rescale,
) -> Vec<f32> {
    let (packet, group) = (interleave.packet(), interleave.group());
    let mut factors = Vec::with_capacity(encoded.len().div_ceil(group));
    for (index, elements) in encoded.chunks_mut(group).enumerate() {
        let mut there = 0;
        for (i, elements) in elements.chunks_mut(packet).enumerate() {
            if arrived(index * (group / packet) + i) {
                there += elements.len();
            } else {
                elements.fill(T::ZERO);
            }
        }
        factors.push(match rescale {
            Rescale::ByArrived if there > 0 => elements.len() as f32 / there as f32,
            Rescale::ByArrived | Rescale::Never => 1.0,
            Rescale::ByShare(share) => 1.0 / share,
        });
    }
    factors
}
