//! Text from a peer, made safe for a terminal.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The maximum number of bytes of a [`Text`].
const MAX_BYTES: usize = 512;

/// A short text that is safe to print: at most 512 bytes, without line ends, control characters or
/// characters that change the direction of writing. Both ends replace or cut what breaks these
/// rules, so a peer cannot control the terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct Text(String);

impl Text {
    /// Makes a text from anything that can be shown.
    pub fn new(shown: impl fmt::Display) -> Self {
        Self::from(shown.to_string())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Text {
    fn from(raw: String) -> Self {
        let mut text = String::with_capacity(raw.len().min(MAX_BYTES));
        for c in raw.chars().map(fit) {
            if text.len() + c.len_utf8() > MAX_BYTES {
                break;
            }
            text.push(c);
        }
        Self(text)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Replaces what could control a terminal in a text of our own, which can hold a name of a file. Line
/// ends stay.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c == '\n' { c } else { fit(c) })
        .collect()
}

/// As [`printable`] for a text of one line, such as a path: line ends are replaced too.
pub fn printable_line(shown: impl fmt::Display) -> String {
    shown.to_string().chars().map(fit).collect()
}

/// The character itself, or U+FFFD in place of one that could control a terminal.
fn fit(c: char) -> char {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}');
    let turns = matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match c.is_control() || is_mark || turns {
        true => '\u{fffd}',
        false => c,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escape_sequences_lose_their_escape() {
        assert_eq!(
            Text::new("a\x1b[2Jb\n\u{202e}c").as_str(),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}c"
        );
    }

    #[test]
    fn our_own_text_keeps_its_line_ends() {
        assert_eq!(
            printable("opening a\x1b[31m\r\nnot found"),
            "opening a\u{fffd}[31m\u{fffd}\nnot found"
        );
        assert_eq!(printable_line("a\x1b[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
    }

    proptest! {
        #[test]
        fn any_string_becomes_printable(raw in ".{0,600}|[\\x00-\\x1f\\u{2028}-\\u{2069}]{0,300}") {
            let text = Text::from(raw);
            prop_assert!(text.as_str().len() <= MAX_BYTES);
            prop_assert!(text.as_str().chars().all(|c| fit(c) == c));
            let sent = postcard::to_stdvec(&text).expect("serialised");
            prop_assert_eq!(postcard::from_bytes::<Text>(&sent), Ok(text));
        }

        #[test]
        fn a_raw_string_of_a_peer_is_cleaned(raw in "\\PC{0,20}[\\x00-\\x1f]{1,20}") {
            let sent = postcard::to_stdvec(&raw).expect("serialised");
            let text: Text = postcard::from_bytes(&sent).expect("a string");
            prop_assert!(text.as_str().chars().all(|c| fit(c) == c));
        }
    }
}
