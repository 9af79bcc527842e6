//! Targets of the program.

use farwrite_cli::fuzzing;

/// A link file.
pub fn link_file(data: &[u8]) {
    fuzzing::link_file(&String::from_utf8_lossy(data));
}

/// The file of paths that transfers have measured.
pub fn paths(data: &[u8]) {
    fuzzing::known_paths(&String::from_utf8_lossy(data));
}

/// The file of peers of a receiver.
pub fn peers(data: &[u8]) {
    fuzzing::peers(&String::from_utf8_lossy(data));
}

/// A trace. It is drawn if it can be read.
pub fn trace(data: &[u8]) {
    fuzzing::trace(data);
}
