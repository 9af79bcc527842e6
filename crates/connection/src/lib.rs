//! Connections between machines that prove who they are.

mod connect;
mod connection;
mod driver;
mod error;
mod handshake;
mod keys;
mod listener;
mod message;
mod message_queue;
mod messages;
mod node;
mod options;
mod session;
mod ticket;

pub use connect::connect;
pub use connection::{Connection, OpenedQueuePair};
pub use error::{Ended, Error};
pub use handshake::RefusalCounts;
pub use keys::{Keys, Peer};
pub use listener::Listener;
pub use message::{ByeCause, Malformed};
pub use messages::{MessageOptions, Messages, SentMessage};
pub use options::ConnectionOptions;
