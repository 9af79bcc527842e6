//! Errors in TOML files.

use farwrite_units::input::at_line;

/// A description of the error in the file, with its line number.
pub(crate) fn in_line(text: &str, error: &toml::de::Error) -> String {
    let start = error.span().map_or(0, |span| span.start);
    at_line(text, start, error.message())
}
