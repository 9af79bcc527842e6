//! The end that receives waits for the stream of a sender.

use std::time::{Duration, Instant};

use farwrite_connection::Connection;
use farwrite_stream::{ConnectionExt, SchemeSetting, Stream};
use farwrite_transfer::Cancel;

use super::{LOOK, NAME, stream_options};
use crate::exit::Failure;

/// How long a sender that has connected may take to open its pipe.
const OPENING: Duration = Duration::from_secs(10);

/// The stream that a sender opens, and the name of its file, which may be empty; `None` if it opens none.
pub(super) fn open(
    connection: &Connection,
    cancel: &Cancel,
) -> Result<Option<(String, Stream)>, Failure> {
    // Verdicts are short, whatever repairs them.
    let options = stream_options(SchemeSetting::Auto);
    let until = Instant::now() + OPENING;
    while Instant::now() < until {
        cancel.check()?;
        match connection.accept_stream(None, &options, LOOK) {
            Ok(Some((name, stream))) => {
                if let Some(file) = file_of(&name) {
                    return Ok(Some((file.to_owned(), stream)));
                }
            }
            Ok(None) => {}
            // The sender has left, or it has another version.
            Err(_) => break,
        }
    }
    Ok(None)
}

/// The name of a file in the name of a stream.
fn file_of(name: &str) -> Option<&str> {
    match name.strip_prefix(NAME)? {
        "" => Some(""),
        rest => rest.strip_prefix('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_may_name_a_file() {
        for (name, file) in [
            ("farwrite-pipe-1", Some("")),
            ("farwrite-pipe-1/a b", Some("a b")),
            ("farwrite-pipe-1/../a", Some("../a")),
            ("farwrite-pipe-10", None),
            ("farwrite files", None),
        ] {
            assert_eq!(file_of(name), file, "{name}");
        }
    }
}
