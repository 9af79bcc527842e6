//! Why there is no connection, or no longer one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use farwrite::routes::RouteShrunk;
use farwrite_keys::{AddressError, Proof, PublicKey, Text, shown};

use crate::message::{ByeCause, Malformed};
use crate::purpose::{Purpose, listed};
use crate::session::SESSION_MTU;

/// Why a call on a connection or a listener failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The name has no address.
    #[error(transparent)]
    Resolve(Arc<farwrite_keys::Error>),
    /// This machine has no route to any address of the peer.
    #[error(
        "no route to {to}: connect this machine to a network that reaches it, or check the address"
    )]
    NoRoute {
        /// The addresses.
        to: String,
    },
    /// The UDP port cannot be bound.
    #[error("cannot bind UDP {}: {why}: {hint}", shown(.addr))]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the operating system says.
        why: String,
        /// What to do.
        hint: &'static str,
    },
    /// The keys of this end do not reach the peer.
    #[error(
        "{name:?} is not among the known peers, and there is no pre-shared key or code: add a line with its name \
         and public key"
    )]
    UnknownPeer {
        /// The name.
        name: String,
    },
    /// The name of a queue pair is not valid.
    #[error(
        "the name of a queue pair has {bytes} bytes or control characters, want at most 255 printable ones"
    )]
    InvalidName {
        /// Its length.
        bytes: usize,
    },
    /// The listener has no keys.
    #[error("the keys are empty: give an identity with known peers, a pre-shared key, or a code")]
    NoKeys,
    /// The responder has other keys.
    #[error(
        "the end at {} has other keys: compare its public key (or the pre-shared key) with the one that this \
         end has for it", shown(.at)
    )]
    KeysDiffer {
        /// Its address.
        at: SocketAddr,
    },
    /// The responder does not take this kind of key.
    #[error(
        "the listener at {} does not accept {}", shown(.at), kinds(.ours)
    )]
    OtherKind {
        /// Its address.
        at: SocketAddr,
        /// What this end has shown.
        ours: Proof,
    },
    /// The responder shows another code.
    #[error(
        "the code is wrong, and is used up now: start the end at {} again for a new one", shown(.at)
    )]
    WrongCode {
        /// Its address.
        at: SocketAddr,
    },
    /// The code has been tried before, by this end or by another one.
    #[error("the code is used up: start the other end again for a new one")]
    CodeUsed,
    /// The listener does not do what the connection is for.
    #[error(
        "the end at {} serves {}, not {purpose}: start {} there, or connect to its port",
        shown(.at), listed(.serves), purpose.server()
    )]
    NotServed {
        /// Its address.
        at: SocketAddr,
        /// What the connection is for.
        purpose: Purpose,
        /// What the listener serves.
        serves: Vec<Purpose>,
    },
    /// The responder speaks another version.
    #[error(
        "the end at {} speaks version {theirs} of connections, this end version {ours}: update the older one",
        shown(.at)
    )]
    Version {
        /// Its address.
        at: SocketAddr,
        /// The version of this end.
        ours: u16,
        /// Its version.
        theirs: u16,
    },
    /// The peer does not know this end.
    #[error(
        "the peer at {} does not know this end's public key: add {own} to the peers that it knows", shown(.at)
    )]
    UnknownHere {
        /// Its address.
        at: SocketAddr,
        /// The public key of this end.
        own: PublicKey,
    },
    /// The peer has no room.
    #[error(
        "the peer at {} has too many connections under way, and had no place for this one within {} s: try again \
         later", shown(.at), seconds(.within)
    )]
    Busy {
        /// Its address.
        at: SocketAddr,
        /// The time limit.
        within: Duration,
    },
    /// Nothing came from the peer.
    #[error(
        "no answer from UDP {} within {} s: is a listener running there, and do firewalls pass UDP to this port?",
        list(.to), seconds(.within)
    )]
    Silent {
        /// The addresses that were tried.
        to: Vec<SocketAddr>,
        /// The time limit.
        within: Duration,
    },
    /// A listener has answered, and then nothing came.
    #[error("the end at {} has answered, and did not finish the handshake within {} s", shown(.at), seconds(.within))]
    Unfinished {
        /// Its address.
        at: SocketAddr,
        /// The time limit.
        within: Duration,
    },
    /// Nothing happened in time.
    #[error("{what} took longer than {} s", seconds(.within))]
    Timeout {
        /// What was waited for.
        what: String,
        /// The time limit.
        within: Duration,
    },
    /// The peer has refused a queue pair.
    #[error("the peer does not open queue pair {name:?}: {reason}")]
    Refused {
        /// The name.
        name: String,
        /// What the peer says.
        reason: Text,
    },
    /// The peer breaks the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The listener was closed.
    #[error("the listener was closed, and accepts no more connections")]
    NotListening,
    /// The connection is over.
    #[error("the connection is over: {0}")]
    Over(Ended),
    /// The endpoint has failed.
    #[error("{0}")]
    Endpoint(Arc<farwrite::Error>),
    /// The handshake cannot be made.
    #[error("the handshake failed: {0}")]
    Noise(String),
    /// The operating system provided no randomness.
    #[error("no random bytes from the operating system: {0}")]
    Randomness(getrandom::Error),
}

/// Why a connection has ended.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Ended {
    /// This end has closed it.
    #[error("this end has closed it")]
    Closed,
    /// The peer has ended it.
    #[error("the peer has ended it ({}){}", because(*.cause), colon(.reason))]
    ByPeer {
        /// Why.
        cause: ByeCause,
        /// What the peer says.
        reason: Text,
    },
    /// The peer was removed from the known peers of this end.
    #[error("the peer is no longer among the known peers")]
    NoLongerKnown,
    /// Nothing was heard of the peer for too long.
    #[error("nothing was heard of the peer for {} s", seconds(.0))]
    Silence(Duration),
    /// ICMP says that nobody is at the peer's port, and the peer does not answer for
    /// [`RESPONDER_GONE_AFTER`](crate::RESPONDER_GONE_AFTER) or
    /// [`INITIATOR_GONE_AFTER`](crate::INITIATOR_GONE_AFTER).
    #[error("nobody is at the peer's port any more: its program has ended, or was killed")]
    Gone,
    /// The peer lives, and has acknowledged nothing of what was sent for too long.
    #[error(
        "the peer has acknowledged nothing of what this end has sent for {} s, although it lives: {}",
        seconds(.within), stuck(.shrunk)
    )]
    Stuck {
        /// The time limit: [`ConnectionOptions::silence_limit`](crate::ConnectionOptions::silence_limit).
        within: Duration,
        /// The packet sizes, if the path carries only smaller packets than before.
        shrunk: Option<RouteShrunk>,
    },
    /// The peer breaks the protocol.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The queue pair of the session, or the route to the peer, has failed.
    #[error("{0}")]
    Endpoint(Arc<farwrite::Error>),
}

impl Error {
    /// Whether the peer has no place for this end at present.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::Over(Ended::ByPeer {
                cause: ByeCause::Busy,
                ..
            })
        )
    }
}

impl From<farwrite::Error> for Error {
    fn from(error: farwrite::Error) -> Self {
        Self::Endpoint(Arc::new(error))
    }
}

impl From<farwrite::Error> for Ended {
    fn from(error: farwrite::Error) -> Self {
        Self::Endpoint(Arc::new(error))
    }
}

impl From<Ended> for Error {
    fn from(ended: Ended) -> Self {
        Self::Over(ended)
    }
}

/// A kind of key, and what a listener needs that does not accept it.
fn kinds(shown: &Proof) -> &'static str {
    match shown {
        Proof::PreShared => "a pre-shared key: it needs an identity, or a code",
        Proof::Identity(_) => "an identity: it needs a pre-shared key, or a code",
        Proof::Code => "a code: it needs a pre-shared key, or an identity",
    }
}

fn because(cause: ByeCause) -> &'static str {
    match cause {
        ByeCause::Closed => "closed",
        ByeCause::NoLongerKnown => "it no longer knows this end",
        ByeCause::Failed => "something failed there",
        ByeCause::Busy => "it is busy",
    }
}

fn stuck(shrunk: &Option<RouteShrunk>) -> String {
    match shrunk {
        Some(shrunk) if shrunk.carries < SESSION_MTU => {
            format!("{shrunk}. A connection needs packets of {SESSION_MTU} bytes")
        }
        Some(shrunk) => format!("{shrunk}. Open a new connection, whose packets are smaller"),
        None => "the path carries packets of this size, but not those with data".into(),
    }
}

fn colon(reason: &Text) -> String {
    match reason.as_str() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}

/// Seconds for people: a limit may be what is left of another one.
fn seconds(time: &Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

pub(crate) fn list(addrs: &[SocketAddr]) -> String {
    let texts: Vec<_> = addrs.iter().map(|addr| shown(addr).to_string()).collect();
    texts.join(", ")
}
