//! How the program ends: its exit codes, and the error message of one line.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use farwrite_connection::Error as ConnectionError;
use farwrite_keys::{KeyError, KeyKind};
use farwrite_stream::Error as StreamError;
use farwrite_transfer::error::chain;
use farwrite_transfer::{Error as TransferError, ErrorKind};

/// The meaning of each exit code, as `--help` shows it. Scripts rely on the numbers: their meaning never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[repr(u8)]
pub(crate) enum Exit {
    /// failed for a reason not listed here
    Other = 1,
    /// the command line makes no sense
    Usage = 2,
    /// the two ends do not fit: keys, versions or settings
    Mismatch = 3,
    /// data did not verify
    Corrupt = 4,
    /// the network or the peer could not be reached, or was lost
    Unreachable = 5,
    /// a local file or directory could not be read or written
    Files = 6,
    /// the receiver is busy with others: try again later
    Busy = 7,
    /// the receiver's disk is full
    Full = 8,
    /// the other end could not read or write a file or directory
    PeerFiles = 9,
    /// ended by Ctrl-C
    // As in shells: 128 plus the number of the signal.
    Interrupted = 130,
}

impl Exit {
    pub(crate) fn of_code(code: i32) -> Option<Self> {
        let mut all = Self::value_variants().iter().copied();
        all.find(|exit| *exit as i32 == code)
    }

    /// The name in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Usage => "usage",
            Self::Mismatch => "mismatch",
            Self::Corrupt => "corrupt",
            Self::Unreachable => "unreachable",
            Self::Files => "files",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::PeerFiles => "peer_files",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The exit codes, as `--help` shows them.
pub(crate) fn exit_codes() -> String {
    let mut text = "Exit codes:\n  0    done".to_owned();
    for exit in Exit::value_variants() {
        let value = exit.to_possible_value();
        let help = value.as_ref().and_then(PossibleValue::get_help);
        let help = help.map(ToString::to_string).unwrap_or_default();
        text += &format!("\n  {:<3}  {help}", *exit as u8);
    }
    text
}

impl From<ErrorKind> for Exit {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Other => Self::Other,
            ErrorKind::Settings => Self::Usage,
            ErrorKind::Mismatch => Self::Mismatch,
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::Unreachable | ErrorKind::RouteShrunk(_) | ErrorKind::Moved => {
                Self::Unreachable
            }
            ErrorKind::Files => Self::Files,
            ErrorKind::PeerFiles => Self::PeerFiles,
            ErrorKind::Full => Self::Full,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::Interrupted => Self::Interrupted,
        }
    }
}

/// The exit code for a connection that was not made, or has ended.
impl From<&ConnectionError> for Exit {
    fn from(error: &ConnectionError) -> Self {
        ErrorKind::from(error).into()
    }
}

/// The exit code for a stream that could not be opened, or has broken.
impl From<&StreamError> for Exit {
    fn from(error: &StreamError) -> Self {
        match (error.of_connection(), error) {
            (Some(error), _) => (&error).into(),
            (None, StreamError::Violation(_)) => Self::Mismatch,
            (None, StreamError::Options(_)) => Self::Other,
            _ => Self::Unreachable,
        }
    }
}

impl From<&KeyError> for Exit {
    fn from(error: &KeyError) -> Self {
        match error {
            KeyError::Read { .. }
            | KeyError::Write { .. }
            | KeyError::Exists(_)
            | KeyError::Exposed { .. } => Self::Files,
            KeyError::Randomness(_) => Self::Other,
            _ => Self::Usage,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The longest line of a failure.
const MOST_CHARACTERS: usize = 2000;

/// Keys that must not be shown.
const SECRETS: [KeyKind; 2] = [KeyKind::PreShared, KeyKind::Identity];

/// Replaces the keys in a text. A message may quote a file, and the user may have named a file of keys by
/// mistake.
pub(crate) fn without_keys(text: &str) -> String {
    let mut shown = text.to_owned();
    for prefix in SECRETS.map(KeyKind::prefix) {
        let mut parts = shown.split(prefix);
        let mut hidden = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            // A text about keys names the prefix alone.
            let key = if rest.len() < part.len() {
                "(a key)"
            } else {
                ""
            };
            hidden += &format!("{prefix}{key}{rest}");
        }
        shown = hidden;
    }
    shown
}

/// Why a command failed, in one line, and its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    line: String,
}

impl Failure {
    /// A failure during `what`, by an error that says the exit code.
    pub(crate) fn of<E: Error>(what: impl fmt::Display, error: &E) -> Self
    where
        for<'a> Exit: From<&'a E>,
    {
        Self::caused(error.into(), what, error)
    }

    /// A failure with a complete description.
    pub(crate) fn new(exit: Exit, what: impl fmt::Display) -> Self {
        let line = without_keys(&what.to_string());
        let mut line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        // The line may quote an input, which may be long.
        if let Some((end, _)) = line.char_indices().nth(MOST_CHARACTERS) {
            line.truncate(end);
            line.push_str(" ...");
        }
        Self { exit, line }
    }

    /// A failure during `what`, with the chain of its causes.
    pub(crate) fn caused(exit: Exit, what: impl fmt::Display, cause: &dyn Error) -> Self {
        Self::new(exit, chain(what, cause))
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        Self::new(error.kind().into(), error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// Converts the error of a call to a failure of a command.
pub(crate) trait OrExit<T> {
    type Error;

    /// Fails with this exit code. `what` describes the activity.
    fn or_exit(self, exit: Exit, what: impl fmt::Display) -> Result<T, Failure>;

    /// Fails with the exit code of the error. `what` describes the activity.
    fn or_fail(self, what: impl fmt::Display) -> Result<T, Failure>
    where
        for<'a> Exit: From<&'a Self::Error>;
}

impl<T, E: Error> OrExit<T> for Result<T, E> {
    type Error = E;

    fn or_exit(self, exit: Exit, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::caused(exit, what, &error))
    }

    fn or_fail(self, what: impl fmt::Display) -> Result<T, Failure>
    where
        for<'a> Exit: From<&'a E>,
    {
        self.map_err(|error| Failure::of(what, &error))
    }
}

#[cfg(test)]
mod tests {
    use farwrite_connection::{ByeCause, Ended};
    use farwrite_keys::Text;

    use super::*;

    #[test]
    fn the_end_of_a_connection_has_one_exit_code() {
        for (cause, exit) in [
            (ByeCause::Busy, Exit::Busy),
            (ByeCause::NoLongerKnown, Exit::Mismatch),
            (ByeCause::Closed, Exit::Unreachable),
        ] {
            let reason = Text::new("");
            let ended = Ended::ByPeer { cause, reason };
            let of_stream = StreamError::ConnectionEnded(ended.clone());
            let of_connection = ConnectionError::Over(ended);
            assert_eq!(Exit::from(&of_stream), exit);
            assert_eq!(Exit::from(&of_connection), exit);
        }
    }

    #[test]
    fn keys_are_not_shown() {
        let text = "line 1: \"farwrite-psk-1:abc234\", and farwrite-identity-1:xyz";
        let shown = Failure::new(Exit::Usage, text).to_string();
        let want = "line 1: \"farwrite-psk-1:(a key)\", and farwrite-identity-1:(a key)";
        assert_eq!(shown, want);
        let prefix = "it should begin with `farwrite-psk-1:`";
        assert_eq!(without_keys(prefix), prefix);
        assert_eq!(
            without_keys("farwrite-public-1:abc"),
            "farwrite-public-1:abc"
        );
    }
}
