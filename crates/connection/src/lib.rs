//! Connections between machines that prove who they are (P12).
//!
//! [`Listener`] accepts connections, and [`connect`] makes one. Over a [`Connection`], queue pairs are
//! opened by name ([`Connection::open_queue_pair`], [`Connection::accept_queue_pair`]). A queue pair is
//! used as those of any [`Endpoint`](farwrite::Endpoint), or for whole messages ([`Messages`]).
//! docs/connections.md is a manual.
//!
//! ```
//! use std::net::{Ipv4Addr, SocketAddr};
//! use std::time::Duration;
//! use farwrite::QpOptions;
//! use farwrite_connection::{ConnectionOptions, Keys, Listener, MessageOptions, connect};
//! use farwrite_keys::{Identity, KnownPeers};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Two ends in one process. Two machines have one identity each, in a file.
//! let [a, b] = [Identity::generate()?, Identity::generate()?];
//! let (mut known_to_a, mut known_to_b) = (KnownPeers::default(), KnownPeers::default());
//! known_to_a.add("site-b", b.public())?;
//! known_to_b.add("site-a", a.public())?;
//! let options = ConnectionOptions::default();
//! let limit = Duration::from_secs(10);
//!
//! let keys = Keys::of_identity(b, known_to_b);
//! let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
//! let listener = Listener::bind(addr, &keys, &options)?;
//! let to = listener.local_addr().to_string();
//! let site_b = std::thread::spawn(move || -> Result<Vec<u8>, farwrite_connection::Error> {
//!     let connection = listener.accept(limit)?.expect("a peer");
//!     assert_eq!(connection.peer().name(), Some("site-a"));
//!     let pair = connection.accept_queue_pair(Some("x"), &QpOptions::default(), limit)?;
//!     let messages = pair.expect("a queue pair").into_messages(MessageOptions::default())?;
//!     Ok(messages.receive(limit)?.expect("a message"))
//! });
//!
//! let connection = connect(&to, &Keys::of_identity(a, known_to_a), "site-b", &options)?;
//! let pair = connection.open_queue_pair("x", QpOptions::default(), limit)?;
//! let messages = pair.into_messages(MessageOptions::default())?;
//! messages.send("hello").wait(limit)?;
//! assert_eq!(site_b.join().expect("no panic")?, b"hello");
//! # Ok(())
//! # }
//! ```

mod connect;
mod connection;
mod cutover;
mod driver;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod handshake;
mod keys;
mod listener;
#[cfg(feature = "measuring")]
#[doc(hidden)]
pub mod measuring;
mod message;
mod message_queue;
mod messages;
mod node;
mod options;
mod purpose;
mod session;
mod ticket;

pub use connect::{Connector, connect, connect_any};
pub use connection::{Connection, OpenedQueuePair};
pub use cutover::{EndedMessages, GoesOn, Numbers};
pub use error::{Ended, Error};
pub use handshake::RefusalCounts;
pub use keys::{Keys, Peer};
pub use listener::Listener;
pub use message::{ByeCause, Malformed};
pub use messages::{MessageOptions, Messages, SentMessage};
pub use node::reserve_port;
pub use options::ConnectionOptions;
pub use purpose::Purpose;
pub use session::{INITIATOR_GONE_AFTER, MAX_NOTICE_BYTES, RESPONDER_GONE_AFTER};
pub use ticket::TooLong;
