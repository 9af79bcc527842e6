//! A bounded run of the fuzz targets: the same functions, with random and nearly valid inputs.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/codes.rs"]
mod targets;

use proptest::prelude::*;

proptest! {
    #[test]
    fn names(text in r"ec-(mds|xor):[0-9]{1,3},[0-9]{1,3}|\PC{0,20}") {
        targets::name(text.as_bytes());
    }

    #[test]
    fn groups(
        header: [u8; 8],
        there in prop::collection::vec(any::<u8>(), 64),
        // In some cases losses are rare, so that groups can be rebuilt.
        rare: bool,
        more in prop::collection::vec(any::<u8>(), 1..400),
    ) {
        let there = there.iter().map(|bits| if rare { bits | bits << 3 | bits >> 3 } else { *bits });
        let input: Vec<u8> = header.into_iter().chain(there).chain(more).collect();
        targets::decode(&input);
    }

    #[test]
    fn inputs_of_any_length(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        targets::decode(&bytes);
        targets::name(&bytes);
    }
}
