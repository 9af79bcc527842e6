//! Files that a user names as input: plans, descriptions of paths, results of other programs.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::show::Bytes;

/// Opens a regular file or a pipe, such as `/dev/stdin` behind `|`.
///
/// # Errors
/// The errors of the operating system. [`ErrorKind::InvalidInput`] for everything else, such as a
/// directory or a device: a device can be without an end.
pub fn open(path: &Path) -> Result<File> {
    let file = File::open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_fifo() {
        return Ok(file);
    }
    let what = match kind.is_dir() {
        true => "a directory",
        false if kind.is_char_device() || kind.is_block_device() => "a device",
        false => "neither a file nor a pipe",
    };
    let what = format!("this is {what}; want a regular file or a pipe");
    Err(Error::new(ErrorKind::InvalidInput, what))
}

/// The message of an error in a text, whose first byte with the error is `start`, with its line.
///
/// ```
/// use farwrite_units::input::at_line;
///
/// assert_eq!(at_line("a = 1\n b = x\n", 11, "no number"), "line 2: no number, in \"b = x\"");
/// ```
#[must_use]
pub fn at_line(text: &str, start: usize, message: &str) -> String {
    let before = text.get(..start).unwrap_or(text);
    let number = before.matches('\n').count() + 1;
    let line = text.lines().nth(number - 1).unwrap_or("").trim();
    format!("line {number}: {message}, in {line:?}")
}

/// Reads the text of a regular file or a pipe that has at most `most_bytes` bytes.
///
/// # Errors
/// As [`open`]. [`ErrorKind::FileTooLarge`] for more bytes; no more than `most_bytes` + 1 of them are
/// read. [`ErrorKind::InvalidData`] for bytes that are not UTF-8.
///
/// ```
/// use std::io::ErrorKind;
/// use std::path::Path;
///
/// use farwrite_units::input::read_text;
///
/// assert!(read_text(Path::new("Cargo.toml"), 64 << 10)?.contains("[package]"));
/// let error = read_text(Path::new("Cargo.toml"), 10).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::FileTooLarge);
/// let error = read_text(Path::new("/dev/zero"), 64 << 10).unwrap_err();
/// assert_eq!(error.to_string(), "this is a device; want a regular file or a pipe");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_text(path: &Path, most_bytes: u64) -> Result<String> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    // A pipe has no length, and a file may grow.
    if file.metadata()?.len() <= most_bytes {
        let mut input = file.take(most_bytes.saturating_add(1));
        input.read_to_end(&mut bytes)?;
        if bytes.len() as u64 <= most_bytes {
            let text = String::from_utf8(bytes);
            return text.map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text (UTF-8)"));
        }
    }
    Err(too_long(most_bytes))
}

/// The error of an input that has more than `most_bytes` bytes.
#[must_use]
pub fn too_long(most_bytes: u64) -> Error {
    let what = format!(
        "it has more than {}: is this the right file?",
        Bytes(most_bytes)
    );
    Error::new(ErrorKind::FileTooLarge, what)
}
