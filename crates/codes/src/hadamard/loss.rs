//! Handles packets that did not arrive.

use alloc::vec::Vec;

use super::element::Element;
use super::{Interleave, TransformError};

/// The factor for the coefficients that arrived, which compensates for the missing ones. The
/// [module](super) documents the resulting errors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rescale {
    /// For each group: the number of its elements, divided by the number of elements that arrived.
    /// This needs no knowledge of the path. A group of which nothing arrived becomes zero.
    ByArrived,
    /// For all groups: `1 / share`, where `share` is the probability that a packet arrives.
    ByShare(f32),
    /// No factor. This gives the smallest mean square error of the three, but the estimate is
    /// biased towards zero.
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
