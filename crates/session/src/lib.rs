//! Keys and addresses of peers ([`Psk`], [`Identity`], [`HostPort`]), and a channel over TCP that both
//! ends authenticate and encrypt with them ([`Channel`]; P7).
//!
//! `docs/security.md` lists what this protects, and what it does not.

mod address;
mod channel;
mod code;
mod connect;
mod encoding;
mod error;
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
mod pending_handshake;
mod psk;
mod reader;
mod records;
mod socket;
mod text;
mod time_limit;
mod writer;

pub use address::{AddressError, AddressForm, AddressProblem, HostPort, parse_listen, shown};
pub use channel::Channel;
pub use code::{Code, Exchange, OneTimeCode, PAKE_BYTES};
pub use encoding::{ChannelMessage, decode, encode};
pub use error::{Activity, Error};
pub use handshake::VERSION;
pub use happy_eyeballs::alternate;
pub use identity::{Identity, PublicKey};
pub use key_text::{KeyError, KeyKind};
pub use keys::{Accepted, AcceptedKeys, Key, Proof};
pub use known_peers::{KnownPeers, KnownPeersError, LineError, PeerProblem};
pub use listener::{Listener, Refusal};
pub use psk::Psk;
pub use reader::Reader;
pub use socket::CloseHandle;
pub use text::{Text, printable, printable_line};
pub use writer::Writer;
