//! The out-of-band half of a Farwrite session. It is a channel over TCP that both ends authenticate
//! and encrypt with a pre-shared key ([`Psk`], [`Channel`]; P7), with the messages that transfer
//! files ([`Message`], [`files`]; P8). The contents of the files go through queue pairs.
//!
//! `docs/security.md` lists what this protects, and what it does not.

mod address;
mod channel;
mod code;
mod connect;
mod error;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod handshake_table;
mod happy_eyeballs;
mod identity;
mod key_file;
mod key_text;
mod keys;
mod known_peers;
mod listener;
mod message;
mod pending_handshake;
mod psk;
mod reader;
mod records;
mod socket;
mod text;
mod time_limit;
mod writer;

pub use address::{AddressError, AddressForm, AddressProblem, HostPort, parse_listen, shown};
pub use channel::{Channel, ChannelMessage};
pub use code::{Code, Exchange, OneTimeCode, PAKE_BYTES};
pub use error::{Activity, Error};
pub use handshake::VERSION;
pub use happy_eyeballs::alternate;
pub use identity::{Identity, PublicKey};
pub use key_text::{KeyError, KeyKind};
pub use keys::{Accepted, AcceptedKeys, Key, Proof};
pub use known_peers::{KnownPeers, KnownPeersError, LineError, PeerProblem};
pub use listener::{Listener, Refusal};
pub use message::{
    Cause, Cutover, CutoverAccepted, Expected, FileCause, Hello, Message, MessageKind, Missing,
    OfferedSockets, Progress, QpBlob, RouteAddress, RouteKey, TransferPlan,
};
pub use psk::Psk;
pub use reader::Reader;
pub use socket::CloseHandle;
pub use text::{Text, printable, printable_line};
pub use writer::Writer;
