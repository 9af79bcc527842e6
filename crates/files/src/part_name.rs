//! The names of files that are being received.
//!
//! `.farwrite-RANDOM-TAG.part` is removed by the next receiver if the one that made it was killed.
//! `.farwrite-PLACE-VERSION-TAG.part` stays, because it says which file of which peer it is, so that a later
//! transfer can go on with it. The tag is a hash of the other numbers and of the inode number. So a file of
//! the same name that someone copied, restored or made is none of ours.

use std::io;

use super::partial::SourceId;
use super::status::Id;

const PREFIX: &[u8] = b".farwrite-";
const SUFFIX: &[u8] = b".part";
/// Digits of a number in a name, and of the long one.
const DIGITS: usize = 16;
const LONG_DIGITS: usize = 32;
/// Domains of the hashes in names (P8.4, P8.8).
const TAG_CONTEXT: &str = "farwrite temporary file 1";
const LASTING_TAG_CONTEXT: &str = "farwrite interrupted file 1";

/// The numbers in a temporary name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PartName {
    numbers: Numbers,
    tag: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Random(u64),
    Source(SourceId),
}

impl PartName {
    /// A name that the next receiver removes, for the file with this inode.
    pub(super) fn new(random: u64, id: Id) -> Self {
        Self::of(Numbers::Random(random), id)
    }

    /// A name that lasts.
    pub(super) fn lasting(source: SourceId, id: Id) -> Self {
        Self::of(Numbers::Source(source), id)
    }

    fn of(numbers: Numbers, id: Id) -> Self {
        let mut hasher = match numbers {
            Numbers::Random(random) => {
                let mut hasher = blake3::Hasher::new_derive_key(TAG_CONTEXT);
                hasher.update(&random.to_be_bytes());
                hasher
            }
            Numbers::Source(source) => {
                let mut hasher = blake3::Hasher::new_derive_key(LASTING_TAG_CONTEXT);
                hasher.update(&source.place.to_be_bytes());
                hasher.update(&source.version.to_be_bytes());
                hasher
            }
        };
        hasher.update(&id.inode.to_be_bytes());
        let mut tag = [0; 8];
        hasher.finalize_xof().fill(&mut tag);
        Self {
            numbers,
            tag: u64::from_be_bytes(tag),
        }
    }

    /// Whether a receiver gave this name to the file with this inode.
    pub(super) fn is_of(self, id: Id) -> bool {
        Self::of(self.numbers, id) == self
    }

    /// Which file it is, if the name lasts.
    pub(super) fn source(self) -> Option<SourceId> {
        match self.numbers {
            Numbers::Random(_) => None,
            Numbers::Source(source) => Some(source),
        }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let tag = self.tag;
        let numbers = match self.numbers {
            Numbers::Random(random) => format!("{random:0DIGITS$x}-{tag:0DIGITS$x}"),
            Numbers::Source(SourceId { place, version }) => {
                format!("{place:0DIGITS$x}-{version:0LONG_DIGITS$x}-{tag:0DIGITS$x}")
            }
        };
        [PREFIX, numbers.as_bytes(), SUFFIX].concat()
    }

    /// Reads a name; `None` for any other.
    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        let numbers = name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let number = |digits| u64::from_str_radix(digits, 16).ok();
        let mut parts = str::from_utf8(numbers).ok()?.split('-');
        let (first, second, third) = (parts.next()?, parts.next()?, parts.next());
        let numbers = match third {
            None => Numbers::Random(number(first)?),
            Some(_) => Numbers::Source(SourceId {
                place: number(first)?,
                version: u128::from_str_radix(second, 16).ok()?,
            }),
        };
        let tag = number(third.unwrap_or(second))?;
        let parsed = Self { numbers, tag };
        (parsed.bytes() == name).then_some(parsed)
    }
}

/// A temporary name that nothing has and nobody looks for.
///
/// # Errors
/// The operating system provides no randomness.
pub fn new_name() -> io::Result<Vec<u8>> {
    Ok(new_name_of()?.1)
}

/// The same, with its random number.
pub(super) fn new_name_of() -> io::Result<(u64, Vec<u8>)> {
    let random = getrandom::u64().map_err(io::Error::other)?;
    let name = [PREFIX, format!("{random:0DIGITS$x}.new").as_bytes()].concat();
    Ok((random, name))
}

pub(super) fn is_temporary(name: &[u8]) -> bool {
    name.starts_with(PREFIX) && (name.ends_with(SUFFIX) || name.ends_with(b".new"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn temporary_names_are_recognised() {
        let name = PartName {
            numbers: Numbers::Random(0xab),
            tag: 0xcd,
        };
        let bytes = b".farwrite-00000000000000ab-00000000000000cd.part";
        assert_eq!(name.bytes(), bytes);
        assert_eq!(PartName::parse(bytes), Some(name));
        let lasting = PartName {
            numbers: Numbers::Source(SourceId {
                place: 0xab,
                version: 0xef,
            }),
            tag: 0xcd,
        };
        let bytes =
            b".farwrite-00000000000000ab-000000000000000000000000000000ef-00000000000000cd.part";
        assert_eq!(lasting.bytes(), bytes);
        assert_eq!(PartName::parse(bytes), Some(lasting));
        for other in [
            &b".farwrite-00000000000000AB-00000000000000cd.part"[..],
            b".farwrite-0000000000000ab-00000000000000cd.part",
            b".farwrite-+0000000000000ab-00000000000000cd.part",
            b".farwrite-00000000000000ab-00000000000000cd.part.",
            b"farwrite-00000000000000ab-00000000000000cd.part",
            b".farwrite-00000000000000ab.part",
            b".farwrite--.part",
            b".farwrite---.part",
            b".farwrite-00000000000000ab-00000000000000ef-00000000000000cd.part",
            b".farwrite-00000000000000ab-000000000000000000000000000000ef-00000000000000cd-.part",
            b".a.farwrite-00000000000000ab-00000000000000cd.part",
        ] {
            assert_eq!(PartName::parse(other), None, "{}", other.escape_ascii());
        }
    }

    proptest! {
        /// What is read is written in the same way, so nothing else is taken for a name of ours: no name
        /// that is cut, and none that is changed in one byte without being another one of ours.
        #[test]
        fn a_name_has_one_form(
            numbers in (any::<u64>(), any::<u128>(), any::<u64>()),
            lasts in any::<bool>(),
            cut in 0_usize..90,
            changed in (0_usize..90, any::<u8>()),
            any_name in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let (place, version, tag) = numbers;
            let numbers = match lasts {
                true => Numbers::Source(SourceId { place, version }),
                false => Numbers::Random(place),
            };
            let name = PartName { numbers, tag };
            let bytes = name.bytes();
            prop_assert_eq!(PartName::parse(&bytes), Some(name));
            prop_assert_eq!(PartName::parse(&bytes[..cut.min(bytes.len() - 1)]), None);
            let mut other = bytes.clone();
            if let Some(byte) = other.get_mut(changed.0) {
                *byte = changed.1;
            }
            for bytes in [other, any_name] {
                let parsed = PartName::parse(&bytes);
                prop_assert!(parsed.is_none_or(|parsed| parsed.bytes() == bytes));
            }
        }
    }
}
