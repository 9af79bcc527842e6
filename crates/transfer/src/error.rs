//! Why a transfer ended, sorted by what the user can do about it.

use std::error::Error as StdError;
use std::fmt::{self, Write as _};

use farwrite::SealingError;
use farwrite::routes::RouteError;
use farwrite_connection::{ByeCause, Ended, Error as ConnectionError};
use farwrite_files::{Cause, FileCause, Message, MessageError, SinkError};
use farwrite_keys::Text;

use crate::RouteShrunk;
use crate::channel::ChannelError;

/// The kind of failure that ended a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Any other failure.
    Other,
    /// This end cannot work with its settings.
    Settings,
    /// The two ends are incompatible: keys, versions or settings.
    Mismatch,
    /// Data did not verify.
    Corrupt,
    /// The network or the peer could not be reached, or was lost.
    Unreachable,
    /// The path carries only smaller packets than before, and the transfer could not continue with
    /// these. A new transfer uses the smaller size:
    ///
    /// ```
    /// use farwrite_transfer::{Error, ErrorKind};
    ///
    /// /// Returns the MTU to send again with, if a smaller one helps.
    /// fn smaller_mtu(error: &Error) -> Option<u32> {
    ///     match error.kind() {
    ///         ErrorKind::RouteShrunk(shrunk) => Some(shrunk.carries),
    ///         _ => None,
    ///     }
    /// }
    /// ```
    RouteShrunk(RouteShrunk),
    /// This machine has lost the address from which it sends. A new transfer can continue from another address.
    Moved,
    /// A file or directory of this end could not be read or written.
    Files,
    /// The other end could not read or write a file or directory.
    PeerFiles,
    /// The receiver's disk is full.
    Full,
    /// The receiver is busy with others.
    Busy,
    /// The user of this end cancelled the transfer.
    Interrupted,
}

impl ErrorKind {
    /// The kind of failure of a file that did not arrive. `at_sender` means that this end is the
    /// sender.
    #[must_use]
    pub fn of_file(cause: FileCause, at_sender: bool) -> Self {
        match (cause, at_sender) {
            (FileCause::Corrupt, _) => Self::Corrupt,
            (FileCause::Unreadable, true) | (FileCause::Unwritable, false) => Self::Files,
            (FileCause::Unreadable, false) | (FileCause::Unwritable, true) => Self::PeerFiles,
        }
    }
}

/// What a connection that was not made, or is over, means to the user.
impl From<&ConnectionError> for ErrorKind {
    fn from(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::KeysDiffer { .. }
            | ConnectionError::OtherKind { .. }
            | ConnectionError::UnknownHere { .. }
            | ConnectionError::UnknownPeer { .. }
            | ConnectionError::NotServed { .. }
            | ConnectionError::WrongCode { .. }
            | ConnectionError::CodeUsed
            | ConnectionError::Version { .. }
            | ConnectionError::Refused { .. }
            | ConnectionError::Malformed(_)
            | ConnectionError::Over(Ended::NoLongerKnown)
            | ConnectionError::Over(Ended::ByPeer {
                cause: ByeCause::NoLongerKnown,
                ..
            }) => Self::Mismatch,
            ConnectionError::Busy { .. } => Self::Busy,
            error if error.is_busy() => Self::Busy,
            ConnectionError::Noise(_)
            | ConnectionError::Randomness(_)
            | ConnectionError::NoKeys
            | ConnectionError::InvalidName { .. } => Self::Other,
            _ => Self::Unreachable,
        }
    }
}

/// What both ends say if one end has `--sealed` and the other end does not seal. The end that finds this out sends the
/// text to its peer, so the text must be true at both ends.
const ONE_SEALS: &str = "one end refuses data packets that are not sealed (--sealed), and the other does not seal \
                         them: leave out --unsealed, update the older end, or leave out --sealed";
/// What both ends say if only one end uses EQDS. The end that finds this out sends the text to its peer, so the text must
/// be true at both ends.
const ONE_HAS_CREDIT: &str = "one end uses EQDS, and the other does not: give the sender --rate-control eqds and the \
                              receiver --credit-rate RATE, or leave out both";

/// Why a transfer ended: a kind for programs, and one line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    line: String,
}

/// The text for the user when the transfer cannot continue with smaller packets.
impl From<RouteShrunk> for Error {
    fn from(shrunk: RouteShrunk) -> Self {
        Self::new(
            ErrorKind::RouteShrunk(shrunk),
            format!("{shrunk}: send again, and the smaller size is used"),
        )
    }
}

impl From<farwrite::Error> for Error {
    fn from(error: farwrite::Error) -> Self {
        if let farwrite::Error::NoCredit = error {
            return Self::new(ErrorKind::Mismatch, ONE_HAS_CREDIT);
        }
        let cause = match &error {
            farwrite::Error::BrokenQueuePair { reason, .. } => reason,
            error => error,
        };
        let kind = match cause {
            farwrite::Error::Sealing(SealingError::PeerDoesNot | SealingError::PeerRequires) => {
                return Self::new(ErrorKind::Mismatch, ONE_SEALS);
            }
            farwrite::Error::Fabric(_) => ErrorKind::Unreachable,
            farwrite::Error::Connect(_) => ErrorKind::Mismatch,
            _ => ErrorKind::Other,
        };
        Self::caused(kind, "moving data", &error)
    }
}

impl Error {
    /// An error with a complete text. Each run of white space becomes one space.
    #[must_use]
    pub fn new(kind: ErrorKind, what: impl fmt::Display) -> Self {
        Self {
            kind,
            line: one_line(&what.to_string()),
        }
    }

    /// An error in the operation `what`, with the chain of its causes.
    #[must_use]
    pub fn caused(kind: ErrorKind, what: impl fmt::Display, cause: &dyn StdError) -> Self {
        Self {
            kind,
            line: chain(what, cause),
        }
    }

    /// The kind of failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// An error of the channel in the operation `what`.
    #[must_use]
    pub fn of_channel(what: impl fmt::Display, error: &ChannelError) -> Self {
        let kind = match error {
            ChannelError::Connection(ConnectionError::Over(Ended::ByPeer {
                cause: ByeCause::Busy,
                reason,
            })) => return Self::new(ErrorKind::Busy, reason),
            ChannelError::Connection(error) => error.into(),
            ChannelError::Timeout { .. }
            | ChannelError::Closed
            | ChannelError::Truncated
            | ChannelError::Stream(_) => ErrorKind::Unreachable,
            // The peer breaks the protocol.
            ChannelError::Over | ChannelError::Message(_) => ErrorKind::Other,
        };
        Self::caused(kind, what, error)
    }

    /// An error of a connection in the operation `what`.
    #[must_use]
    pub fn of_connection(what: impl fmt::Display, error: &ConnectionError) -> Self {
        Self::caused(error.into(), what, error)
    }

    /// A message of the peer that ends the operation `what`.
    #[must_use]
    pub fn of_message(what: impl fmt::Display, error: &MessageError) -> Self {
        let kind = match error {
            MessageError::Aborted { cause, .. } => of_cause(*cause),
            // All other errors mean that the peer breaks the protocol.
            _ => ErrorKind::Other,
        };
        Self::caused(kind, what, error)
    }

    /// There is no path between the sockets of the two ends, although there is a channel.
    pub(crate) fn of_route(error: RouteError) -> Self {
        match error {
            RouteError::PortRewritten { named, seen } => Self::new(
                ErrorKind::Mismatch,
                format!(
                    "the receiver's port is {named} to itself and {seen} to this end: address \
                     translation at the receiver must keep ports; forward UDP port {} to \
                     the same port number there, or have the receiver listen on {}",
                    seen.port(),
                    seen.port()
                ),
            ),
            RouteError::Shrunk(shrunk) => shrunk.into(),
            error => Self::caused(
                ErrorKind::Unreachable,
                "finding the path of the data",
                &error,
            ),
        }
    }

    /// An error of the receiver's whole directory.
    #[must_use]
    pub fn of_sink(error: &SinkError) -> Self {
        let kind = match error {
            SinkError::Full { .. }
            | SinkError::NoRoom { .. }
            | SinkError::NoInodes { .. }
            | SinkError::Reserve { .. } => ErrorKind::Full,
            SinkError::Open(_)
            | SinkError::Prepare(_)
            | SinkError::Write(_)
            | SinkError::SameDirectory { .. }
            | SinkError::Delete { .. }
            | SinkError::Extra(_)
            | SinkError::TooMuchToReplace { .. }
            | SinkError::TooMuchToDelete { .. } => ErrorKind::Files,
            SinkError::Name(_) | SinkError::Quota { .. } | SinkError::QuotaEntries { .. } => {
                ErrorKind::Mismatch
            }
            _ => ErrorKind::Other,
        };
        Self::caused(kind, "receiving files", error)
    }

    /// The message by which the peer learns of this error.
    pub(crate) fn abort(&self) -> Message {
        Message::Abort {
            cause: self.cause(),
            reason: Text::new(self),
        }
    }

    /// What the message names as the cause.
    fn cause(&self) -> Cause {
        match self.kind {
            ErrorKind::Interrupted => Cause::Interrupted,
            ErrorKind::Mismatch => Cause::Mismatch,
            ErrorKind::Files => Cause::Files,
            ErrorKind::Unreachable | ErrorKind::RouteShrunk(_) | ErrorKind::Moved => Cause::Network,
            ErrorKind::Busy => Cause::Busy,
            ErrorKind::Full => Cause::Full,
            ErrorKind::Other | ErrorKind::Settings | ErrorKind::Corrupt | ErrorKind::PeerFiles => {
                Cause::Other
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl StdError for Error {}

/// What an abort of the peer means at this end.
fn of_cause(cause: Cause) -> ErrorKind {
    match cause {
        Cause::Mismatch => ErrorKind::Mismatch,
        Cause::Network | Cause::Interrupted => ErrorKind::Unreachable,
        Cause::Files => ErrorKind::PeerFiles,
        Cause::Busy => ErrorKind::Busy,
        Cause::Full => ErrorKind::Full,
        Cause::Other => ErrorKind::Other,
    }
}

/// One line: the operation, and every cause of the error once.
#[must_use]
pub fn chain(what: impl fmt::Display, cause: &dyn StdError) -> String {
    let mut line = what.to_string();
    let mut next = Some(cause);
    while let Some(cause) = next {
        let text = cause.to_string();
        // Some errors include the text of their cause.
        if !line.ends_with(&text) {
            write!(line, ": {text}").expect("a string accepts every write");
        }
        next = cause.source();
    }
    one_line(&line)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_one_line_with_every_cause_once() {
        #[derive(Debug)]
        struct Link(&'static str, Option<Box<Link>>);
        impl fmt::Display for Link {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl StdError for Link {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                self.1.as_deref().map(|cause| cause as _)
            }
        }
        let inner = Link("no\nroom", None);
        let middle = Link("binding: no\nroom", Some(Box::new(inner)));
        assert_eq!(chain("starting", &middle), "starting: binding: no room");
    }

    #[test]
    fn an_abort_means_the_same_at_both_ends() {
        for (kind, at_the_peer) in [
            (ErrorKind::Full, ErrorKind::Full),
            (ErrorKind::Busy, ErrorKind::Busy),
            (ErrorKind::Files, ErrorKind::PeerFiles),
            (ErrorKind::Mismatch, ErrorKind::Mismatch),
            (ErrorKind::Interrupted, ErrorKind::Unreachable),
            (ErrorKind::Unreachable, ErrorKind::Unreachable),
            (ErrorKind::Corrupt, ErrorKind::Other),
        ] {
            assert_eq!(of_cause(Error::new(kind, "").cause()), at_the_peer);
        }
    }
}
