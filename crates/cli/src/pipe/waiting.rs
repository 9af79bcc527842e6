//! The end that receives waits for the one sender of a pipe.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farwrite_connection::{Connection, Listener};
use farwrite_stream::{ConnectionExt, Error as StreamError, SchemeSetting, Stream};
use farwrite_transfer::{Cancel, Observer, Refused};
use serde_json::json;

use super::{LOOK, NAME, stream_options};
use crate::audit::Audit;
use crate::exit::Failure;

/// How long a sender that has connected may take to open its pipe.
const OPENING: Duration = Duration::from_secs(10);

/// Waits for a sender that opens a pipe. Notes those that may not.
///
/// # Errors
/// [`Exit::Interrupted`]; the port has failed; a sender has used the code up and opened no pipe.
pub(super) fn accept(
    listener: &Listener,
    audit: &Arc<Audit>,
    cancel: &Cancel,
) -> Result<(Connection, Stream), Failure> {
    let failed = |error| Failure::of_stream("waiting for the sender", &error);
    let mut refused = Refused::new(Arc::clone(audit) as Arc<dyn Observer>);
    loop {
        cancel.check()?;
        if let Err(error) = refused.look(listener, Instant::now()) {
            audit.note(json!({ "event": "refused", "message": error.to_string() }));
            return Err(error.into());
        }
        let accepted = listener.accept(LOOK).map_err(StreamError::Connection);
        let Some(connection) = accepted.map_err(failed)? else {
            continue;
        };
        if let Some(stream) = open(&connection, cancel)? {
            return Ok((connection, stream));
        }
    }
}

/// The stream that a sender opens; `None` if it does not.
fn open(connection: &Connection, cancel: &Cancel) -> Result<Option<Stream>, Failure> {
    // Verdicts are short, whatever repairs them.
    let options = stream_options(SchemeSetting::Auto);
    let until = Instant::now() + OPENING;
    while Instant::now() < until {
        cancel.check()?;
        match connection.accept_stream(Some(NAME), &options, LOOK) {
            Ok(Some((_, stream))) => return Ok(Some(stream)),
            Ok(None) => {}
            // The sender has left, or it has another version.
            Err(_) => break,
        }
    }
    Ok(None)
}
