//! What an error of the session or the library means to whoever started the program.

use farwrite_session::files::SinkError;
use farwrite_session::{Cause, Error, PskError};

use crate::exit::{Exit, Failure};

/// An error of the channel, as a failure while doing `what`.
pub(crate) fn sort(what: &str, error: &Error) -> Failure {
    let exit = match error {
        Error::KeysDiffer | Error::Version { .. } | Error::NotFarwrite { .. } => Exit::Mismatch,
        Error::Aborted { cause, .. } => match cause {
            Cause::Mismatch => Exit::Mismatch,
            Cause::Network | Cause::Interrupted => Exit::Unreachable,
            Cause::Files | Cause::Other => Exit::Other,
        },
        Error::Resolve(_)
        | Error::Connect { .. }
        | Error::Listen { .. }
        | Error::HandshakeCut
        | Error::Timeout { .. }
        | Error::Io { .. }
        | Error::Closed
        | Error::Truncated => Exit::Unreachable,
        // The rest is a peer that breaks the protocol.
        _ => Exit::Other,
    };
    Failure::caused(exit, what, error)
}

/// An error of the endpoint.
pub(super) fn of_endpoint(error: &farwrite::Error) -> Failure {
    let exit = match error {
        farwrite::Error::Fabric(_) => Exit::Unreachable,
        farwrite::Error::Connect(_) => Exit::Mismatch,
        _ => Exit::Other,
    };
    Failure::caused(exit, "moving data", error)
}

/// An error of the receiver's files.
pub(super) fn of_sink(error: &SinkError) -> Failure {
    let exit = match error {
        SinkError::Io { .. } | SinkError::InTheWay { .. } => Exit::Files,
        _ => Exit::Other,
    };
    Failure::caused(exit, "receiving files", error)
}

/// An error of the key.
pub(super) fn of_key(what: &str, error: &PskError) -> Failure {
    let exit = match error {
        PskError::Io { .. } | PskError::Exists(_) | PskError::Exposed { .. } => Exit::Files,
        PskError::Randomness(_) => Exit::Other,
        _ => Exit::Usage,
    };
    Failure::caused(exit, what, error)
}

/// What to tell the peer of a failure here.
pub(super) fn cause(failure: &Failure) -> Cause {
    match failure.exit {
        Exit::Interrupted => Cause::Interrupted,
        Exit::Mismatch => Cause::Mismatch,
        Exit::Files => Cause::Files,
        Exit::Unreachable => Cause::Network,
        Exit::Other | Exit::Usage | Exit::Corrupt => Cause::Other,
    }
}
