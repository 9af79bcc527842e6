//! The same loops, compiled for wide vectors where the processor has them. The results are the same:
//! no loop changes the order of what is computed.
#![allow(unsafe_code)]

use super::reduce_inline;
use crate::element::{ElementType, Reduction};

/// See [`super::reduce`].
pub(super) fn reduce(element: ElementType, reduction: Reduction, target: &mut [u8], source: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        unsafe { reduce_avx2(element, reduction, target, source) }
        return;
    }
    reduce_inline(element, reduction, target, source);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn reduce_avx2(element: ElementType, reduction: Reduction, target: &mut [u8], source: &[u8]) {
    reduce_inline(element, reduction, target, source);
}
