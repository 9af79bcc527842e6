//! The end that receives waits for the one sender of a pipe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite_connection::{Connection, Listener};
use farwrite_stream::{ConnectionExt, SchemeSetting, Stream};
use farwrite_transfer::{Cancel, Refused};

use super::{LOOK, NAME, stream_options};
use crate::accepting::Accepting;
use crate::audit::Audit;
use crate::console::Console;
use crate::exit::Failure;

/// How long a sender that has connected may take to open its pipe.
const OPENING: Duration = Duration::from_secs(10);

/// Waits for a sender that opens a pipe. Notes those that may not.
///
/// # Errors
/// [`Exit::Interrupted`]; the port has failed; a sender has used the code up and opened no pipe.
pub(super) fn accept(
    (accepting, listener): (&Accepting, &Listener),
    audit: &Arc<Audit>,
    cancel: &Cancel,
    console: &Console,
) -> Result<(Connection, Stream), Failure> {
    let mut refused = Refused::new(Arc::<Audit>::clone(audit));
    loop {
        cancel.check()?;
        let Some(connection) = accepting.next(listener, (&mut refused, audit), console)? else {
            continue;
        };
        if let Some((_, stream)) = open(&connection, cancel)? {
            return Ok((connection, stream));
        }
    }
}

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
