//! Why a channel could not be set up, or ended.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::PublicKey;
use crate::address::shown;

/// What went wrong on a channel. Every variant except [`Error::Timeout`] (when reading) and
/// [`Error::TooLong`] (when sending) ends the channel: later calls return [`Error::Over`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host name has no address, or the network interface does not exist.
    #[error("cannot find the address of {host}: {source}")]
    Resolve {
        /// The requested host and port.
        host: String,
        /// Whether a later lookup may succeed, because no name server answered (`EAI_AGAIN`).
        is_temporary: bool,
        /// The cause.
        source: io::Error,
    },
    /// No program accepts connections at the address.
    #[error("cannot connect to {}: {source}", shown(.addr))]
    Connect {
        /// The address that was tried.
        addr: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The routing table of this machine has no route to the address.
    #[error(
        "cannot connect to {0}: this machine has no route to {1}: connect it to that network (`ip \
         route get {1}` shows the route), or give another address of the receiver",
        shown(.addr),
        addr.ip()
    )]
    NoRoute {
        /// The address that was tried.
        addr: SocketAddr,
    },
    /// The caller gave up.
    #[error("the attempt to connect was cancelled")]
    Cancelled,
    /// The address cannot be listened on.
    #[error("cannot listen on {}: {source}", shown(.addr))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// Too many connections had an unfinished handshake. This one was the oldest.
    #[error("its handshake was not finished after {after:.1?}, and a newer connection replaced it")]
    Crowded {
        /// How long the handshake had lasted.
        after: Duration,
    },
    /// The peer is some other program (P7.2).
    #[error("the peer is not Farwrite: it began with \"{came}\"")]
    NotFarwrite {
        /// What the peer sent, escaped.
        came: String,
    },
    /// The peer speaks another version of the protocol (P7.2).
    #[error(
        "the peer speaks version {theirs} of the Farwrite protocol, this end version {ours}: update the older one"
    )]
    Version {
        /// The version of this end.
        ours: u16,
        /// The version of the peer.
        theirs: u16,
    },
    /// The handshake does not verify (P7.3).
    #[error(
        "the keys of the two ends differ: the pre-shared keys, or the receiver's public key and the one that \
         the sender expects (or the handshake was changed on its way)"
    )]
    KeysDiffer,
    /// The responder does not know the public key of a peer.
    #[error("this end does not know the peer's public key: add {key} to its peers")]
    UnknownHere {
        /// The peer's public key.
        key: PublicKey,
    },
    /// The responder does not know this end's public key.
    #[error("the peer does not know this end's public key: `farwrite keygen --public` prints it")]
    UnknownThere,
    /// The responder does not accept this kind of key.
    #[error(
        "the receiver does not accept this kind of key: it accepts another kind (pre-shared key, identity or \
         code), or its version is older"
    )]
    NotThisWay,
    /// The sender's user has typed another code than the receiver shows.
    #[error("the code is wrong, and is used up now: start the receiver again for a new one")]
    WrongCode,
    /// Somebody has used the code.
    #[error("the code is used up: start the receiver again for a new one")]
    CodeUsed,
    /// A message of the exchange about a code that no code gives.
    #[error("the exchange about the code is malformed")]
    BadExchange,
    /// The peer answered the handshake with a status that P7.3 does not have.
    #[error("the peer answered the handshake with status {came}, want 0 (accepted), or 1 to 4")]
    Status {
        /// The status.
        came: u8,
    },
    /// The connection ended before the handshake did.
    #[error("the peer closed the connection during the handshake")]
    HandshakeCut,
    /// The time limit expired.
    #[error("the peer did not do its part within {after:?} of {doing}")]
    Timeout {
        /// What was being done.
        doing: Activity,
        /// The time limit.
        after: Duration,
    },
    /// The operating system ended the connection.
    #[error("the connection to the peer broke while {doing}: {source}")]
    Io {
        /// What was being done.
        doing: Activity,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The peer closed the channel between two messages.
    #[error("the peer closed the connection, or its program was killed")]
    Closed,
    /// The connection ended within a message.
    #[error("the connection ended within a message")]
    Truncated,
    /// An earlier error or a [`CloseHandle`](crate::CloseHandle) ended the channel.
    #[error("the channel is over: this end closed it, or an earlier error ended it")]
    Over,
    /// A record too short to hold a tag (P7.4).
    #[error("a record of {came} bytes came, want at least {min}")]
    RecordLength {
        /// Its length.
        came: usize,
        /// The minimum length.
        min: usize,
    },
    /// A record that the peer did not write, or wrote at another position (P7.4).
    #[error("a record does not verify: the connection was tampered with")]
    Forged,
    /// A message longer than the limit of its type. The message is refused before it is stored.
    #[error("a {name} of {came} bytes, at most {max} are allowed")]
    TooLong {
        /// The type.
        name: &'static str,
        /// The length.
        came: usize,
        /// The limit.
        max: usize,
    },
    /// Bytes that are not a message of the type.
    #[error("the peer sent {came_bytes} bytes that are no {name}: {why}")]
    Malformed {
        /// The type.
        name: &'static str,
        /// How many bytes there were.
        came_bytes: usize,
        /// What is wrong.
        why: String,
    },
    /// The Noise library refuses its own parameters.
    #[error("the handshake cannot be set up: {0}")]
    Noise(snow::Error),
}

/// What this end does when its time limit expires or its connection breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Activity {
    /// Looking up the address of the peer's host.
    #[error("looking its name up")]
    Lookup,
    /// Connecting to the peer.
    #[error("connecting")]
    Connecting,
    /// Waiting until a peer has a channel.
    #[error("waiting for it")]
    Listening,
    /// Accepting connections.
    #[error("accepting connections")]
    Accepting,
    /// The handshake.
    #[error("shaking hands")]
    Handshake,
    /// Preparing the connection after the handshake.
    #[error("setting up the channel")]
    SettingUp,
    /// Sending a message.
    #[error("sending")]
    Sending,
    /// Waiting for a message, or receiving it.
    #[error("receiving")]
    Receiving,
}
