//! The number formats of tensors.

use half::{bf16, f16};

/// An element format that the transform accepts: `f32`, [`half::f16`] or [`half::bf16`].
///
/// All arithmetic is in `f32`. A result is rounded to the format once, to the nearest value, with
/// ties to even.
pub trait Element: sealed::Sealed {}

impl Element for f32 {}
impl Element for f16 {}
impl Element for bf16 {}

/// The representation of a value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    F32,
    F16,
    Bf16,
}

pub(super) mod sealed {
    use super::Format;

    /// The operations that the transform needs of a format. Other crates cannot implement it.
    pub trait Sealed: Copy {
        /// The format by which vector kernels select their loads and stores.
        const FORMAT: Format;
        const ZERO: Self;
        fn to_f32(self) -> f32;
        fn from_f32(value: f32) -> Self;
    }
}

impl sealed::Sealed for f32 {
    const FORMAT: Format = Format::F32;
    const ZERO: Self = 0.0;

    fn to_f32(self) -> f32 {
        self
    }

    fn from_f32(value: f32) -> Self {
        value
    }
}

// The `const` conversions use integer arithmetic on every machine.
impl sealed::Sealed for f16 {
    const FORMAT: Format = Format::F16;
    const ZERO: Self = Self::ZERO;

    fn to_f32(self) -> f32 {
        self.to_f32_const()
    }

    fn from_f32(value: f32) -> Self {
        Self::from_f32_const(value)
    }
}

impl sealed::Sealed for bf16 {
    const FORMAT: Format = Format::Bf16;
    const ZERO: Self = Self::ZERO;

    fn to_f32(self) -> f32 {
        self.to_f32_const()
    }

    fn from_f32(value: f32) -> Self {
        Self::from_f32_const(value)
    }
}
