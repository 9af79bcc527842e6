//! The end that receives waits for the one sender of a pipe.

use std::time::{Duration, Instant};

use farwrite_connection::{Connection, Listener};
use farwrite_session::shown;
use farwrite_stream::{ConnectionExt, Error as StreamError, SchemeSetting, Stream};
use farwrite_transfer::Cancel;
use serde_json::json;

use super::{LOOK, NAME, stream_options};
use crate::audit::Audit;
use crate::exit::{Exit, Failure};

/// How long a sender that has connected may take to open its pipe.
const OPENING: Duration = Duration::from_secs(10);
/// The shortest time between two lines about attempts with other keys.
const NOTE: Duration = Duration::from_secs(1);

/// Waits for a sender that opens a pipe. Notes those that may not.
///
/// # Errors
/// [`Exit::Interrupted`]; the port has failed; a sender has used the code up and opened no pipe.
pub(super) fn accept(
    listener: &Listener,
    audit: &Audit,
    cancel: &Cancel,
) -> Result<(Connection, Stream), Failure> {
    let failed = |error| Failure::of_stream("waiting for the sender", &error);
    let mut refused = Refused::default();
    let mut code_used = None;
    loop {
        cancel.check()?;
        refused.note(listener, audit);
        check_code(listener, audit, &mut code_used)?;
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

/// Fails if nobody can use the code any more, and nothing has come of it since.
fn check_code(
    listener: &Listener,
    audit: &Audit,
    used: &mut Option<Instant>,
) -> Result<(), Failure> {
    if !listener.is_code_used() {
        // It is used again after a sender that found no room.
        *used = None;
        return Ok(());
    }
    let is_wrong = listener.refusals().wrong_codes > 0;
    let since = used.get_or_insert_with(Instant::now);
    if !is_wrong && since.elapsed() < OPENING {
        return Ok(());
    }
    let how = if is_wrong {
        "a wrong code"
    } else {
        "the code, and opened no pipe"
    };
    let what = format!(
        "the code is used up: a sender has tried {how}; start this program again for a new code"
    );
    let failure = Failure::new(Exit::Mismatch, what);
    audit.note(json!({ "event": "refused", "message": failure.to_string() }));
    Err(failure)
}

/// Senders that may not send.
#[derive(Default)]
struct Refused {
    noted: u64,
    at: Option<Instant>,
}

impl Refused {
    /// Writes a line about those that have come since the last one.
    fn note(&mut self, listener: &Listener, audit: &Audit) {
        let counts = listener.refusals();
        let all = counts.other_keys + counts.unknown_peers;
        if all == self.noted || self.at.is_some_and(|at| at.elapsed() < NOTE) {
            return;
        }
        let count = all - self.noted;
        let from = counts.latest.map_or(String::new(), |addr| {
            format!(", the last from {}", shown(&addr))
        });
        let unknown = counts.latest_unknown.map_or(String::new(), |key| {
            format!("; the public key of the last peer that is not known: {key}")
        });
        let message =
            format!("attempts to connect without a key that is accepted: {count}{from}{unknown}");
        audit.note(json!({ "event": "refused", "message": message }));
        (self.noted, self.at) = (all, Some(Instant::now()));
    }
}
