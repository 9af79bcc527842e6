//! Who the ends of a connection are, and where: keys ([`Psk`], [`Identity`], [`KnownPeers`], [`Code`]), addresses
//! ([`HostPort`]), texts that are safe to print ([`Text`]), and the serialised form of messages
//! ([`ChannelMessage`]). Nothing here uses a network, except for the lookup of names.
//!
//! `docs/security.md` lists what the keys protect, and what they do not.

mod address;
mod code;
mod encoding;
mod error;
mod identity;
mod key_file;
mod key_text;
mod keys;
mod known_peers;
mod psk;
mod text;

pub use address::{AddressError, AddressForm, AddressProblem, HostPort, parse_listen, shown};
pub use code::{Code, Exchange, OneTimeCode, PAKE_BYTES};
pub use encoding::{ChannelMessage, decode, encode};
pub use error::Error;
pub use identity::{Identity, PublicKey};
pub use key_text::{KeyError, KeyKind};
pub use keys::{Key, Proof};
pub use known_peers::{KnownPeers, KnownPeersError, LineError, PeerProblem};
pub use psk::Psk;
pub use text::{Text, printable, printable_line};
