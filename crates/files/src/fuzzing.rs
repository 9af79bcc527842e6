//! The names of interrupted files, for the targets in `fuzz/`. Not part of the interface.

use crate::part_name::PartName;

/// Reads the name of an interrupted file and writes it again; `None` for any other name.
#[must_use]
pub fn rewritten_name(name: &[u8]) -> Option<Vec<u8>> {
    PartName::parse(name).map(PartName::bytes)
}
