//! Compares the properties that must be equal at two ranks, based on the header of a segment.

use crate::element::{ElementType, Reduction};
use crate::operation::{Algorithm, name};
use crate::segment::Header;

/// An argument that differs between two ranks.
pub(crate) struct Mismatch {
    pub(crate) argument: &'static str,
    pub(crate) theirs: String,
    pub(crate) ours: String,
}

impl Mismatch {
    fn new(argument: &'static str, theirs: impl ToString, ours: impl ToString) -> Self {
        Self {
            argument,
            theirs: theirs.to_string(),
            ours: ours.to_string(),
        }
    }

    /// The names of two codes of `all`. Codes count from 1; 0 means none.
    fn of_codes<T: ToString>(all: &[T], argument: &'static str, theirs: u8, ours: u8) -> Self {
        let name = |code: u8| {
            let value = usize::from(code).checked_sub(1).and_then(|at| all.get(at));
            value.map_or_else(|| "none".to_owned(), ToString::to_string)
        };
        Self::new(argument, name(theirs), name(ours))
    }
}

/// Finds the first argument in which the header of a segment differs from the expected header.
/// `bytes` follow the header, and the step still expects `left` bytes.
pub(crate) fn find(header: &Header, expected: &Header, bytes: u64, left: u64) -> Option<Mismatch> {
    let (theirs, ours) = (header.descriptor, expected.descriptor);
    let delivery = |is_bounded| if is_bounded { "bounded" } else { "exact" };
    let pairs = [
        Mismatch::new("operation", name(theirs.operation), name(ours.operation)),
        Mismatch::of_codes(
            &ElementType::ALL,
            "element type",
            theirs.element,
            ours.element,
        ),
        Mismatch::of_codes(
            &Reduction::ALL,
            "reduction",
            theirs.reduction,
            ours.reduction,
        ),
        Mismatch::new("root", theirs.root, ours.root),
        Mismatch::new(
            "delivery",
            delivery(theirs.is_bounded),
            delivery(ours.is_bounded),
        ),
        Mismatch::new("bytes", theirs.bytes, ours.bytes),
        Mismatch::of_codes(
            &Algorithm::ALL,
            "algorithm",
            theirs.algorithm,
            ours.algorithm,
        ),
        Mismatch::new("offset", header.offset, expected.offset),
    ];
    let different = pairs.into_iter().find(|pair| pair.theirs != pair.ours);
    let is_length_wrong = bytes > left || (bytes == 0 && left > 0);
    let length = || Mismatch::new("bytes of a segment", bytes, format!("at most {left}"));
    different.or_else(|| is_length_wrong.then(length))
}
