//! The types of tensor values, and how values are combined.

use std::fmt;

/// The type of the values of a tensor, in the byte order of the machine. All ranks of a group must
/// have the same byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// IEEE 754 binary64.
    F64,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// Signed integers of 64 bits.
    I64,
    /// Signed integers of 32 bits.
    I32,
    /// Unsigned integers of 8 bits.
    U8,
    /// One byte: 0 is false, every other value is true. Reductions over several ranks are 0 or 1.
    Bool,
    /// Signed integers of 8 bits.
    I8,
}

impl ElementType {
    /// All element types.
    pub const ALL: [Self; 9] = [
        Self::F64,
        Self::F32,
        Self::F16,
        Self::Bf16,
        Self::I64,
        Self::I32,
        Self::U8,
        Self::Bool,
        Self::I8,
    ];

    /// The size of a value in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::U8 | Self::Bool | Self::I8 => 1,
        }
    }

    /// Whether values are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F64 | Self::F32 | Self::F16 | Self::Bf16)
    }

    /// The number that represents the type in messages.
    pub(crate) const fn code(self) -> u8 {
        self as u8 + 1
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F64 => "float64",
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
            Self::I64 => "int64",
            Self::I32 => "int32",
            Self::U8 => "uint8",
            Self::Bool => "bool",
            Self::I8 => "int8",
        })
    }
}

/// How the values of several ranks are combined into one.
///
/// | | floats | integers | bool |
/// |---|---|---|---|
/// | `Sum` | sum | sum that wraps around | or |
/// | `Mean` | sum, divided by the number of ranks | the same, rounded toward 0 | refused |
/// | `Min` | minimum; NaN where one is NaN | minimum | and |
/// | `Max` | maximum; NaN where one is NaN | maximum | or |
/// | `Product` | product | product that wraps around | and |
/// | `And`, `Or`, `Xor` | refused | bit by bit | and, or, exclusive or |
///
/// Each step takes two values and rounds to the element type. `F16` and `Bf16` are computed in
/// `f32` and rounded to nearest, ties to even, after each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The sum.
    Sum,
    /// The sum, divided by the number of ranks.
    Mean,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The product.
    Product,
    /// The bits that all values have.
    And,
    /// The bits that a value has.
    Or,
    /// The bits that an odd number of values have.
    Xor,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Self; 8] = [
        Self::Sum,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::Product,
        Self::And,
        Self::Or,
        Self::Xor,
    ];

    /// Whether this reduction supports values of the type.
    #[must_use]
    pub const fn supports(self, element: ElementType) -> bool {
        match self {
            Self::Mean => !matches!(element, ElementType::Bool),
            Self::And | Self::Or | Self::Xor => !element.is_float(),
            Self::Sum | Self::Min | Self::Max | Self::Product => true,
        }
    }

    /// The number that represents the reduction in messages.
    pub(crate) const fn code(self) -> u8 {
        self as u8 + 1
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Product => "product",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        })
    }
}
