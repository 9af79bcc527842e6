//! A bounded run of the fuzz target: the same function, with random and nearly valid inputs.

#[allow(unreachable_pub)]
#[path = "../../../../fuzz/src/http.rs"]
mod targets;

use proptest::prelude::*;

proptest! {
    #[test]
    fn requests(
        piece: u8,
        line in r"(GET|HEAD|POST|get|\PC{0,3})[ ]{0,2}/?\PC{0,9} HTTP/[0-2]\.[0-2]",
        fields in prop::collection::vec(r"(\PC{0,9}: \PC{0,20})?\r?\n", 0..5),
        length in prop_oneof![Just(0), 8180..8200usize],
    ) {
        let text = format!("{line}\r\n{}{}\r\n\r\n", fields.concat(), "a".repeat(length));
        targets::exchange(&[&[piece], text.as_bytes()].concat());
    }

    #[test]
    fn bytes_of_any_length(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        targets::exchange(&bytes);
    }
}
