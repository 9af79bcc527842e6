//! Targets of the keys crate.

use farwrite_keys::{Code, HostPort, Psk, parse_listen, shown};

/// The text form of a code (P12.2). A code that was read has the digits of the text.
pub fn code(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(code) = text.parse::<Code>() {
        let digits = |text: &str| {
            let digits = text.chars().filter(char::is_ascii_digit);
            digits.collect::<String>()
        };
        assert_eq!(digits(&code.to_text()), digits(&text));
    }
}

/// The text form of a key (P12.2). A key that was read is written the same, except for case and for blanks
/// around it.
pub fn psk(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(key) = text.parse::<Psk>() {
        assert!(key.to_text().eq_ignore_ascii_case(text.trim()));
    }
}

/// An address to connect to or to listen on. An address that was read is written so that it reads the same.
pub fn address(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(to) = text.parse::<HostPort>() {
        assert_eq!(to.to_string().parse(), Ok(to));
    }
    if let Ok(addr) = parse_listen(&text) {
        assert_eq!(parse_listen(&shown(&addr).to_string()), Ok(addr));
    }
}
