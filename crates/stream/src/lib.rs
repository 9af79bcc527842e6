//! Byte streams over the messages of a queue pair: ordered, reliable, in both directions.
//!
//! A stream has a queue pair of its own, so a stream that nobody reads does not hold up another.
//! What is written is gathered into messages, each repaired by a scheme of choice. The reader posts
//! buffers, and posts them again when they were read: that is the back pressure. Either end can end
//! its direction, give it up with a code, or ask the peer to send no more. P13 says what
//! crosses the network.
//!
//! [`ByteStream`] is a stream without I/O, clock and thread.

mod buffers;
mod byte_stream;
mod error;
mod message;
mod options;
mod receiver;
mod scheme;
mod sender;

pub use byte_stream::ByteStream;
pub use error::Error;
pub use farwrite_choice::SchemeSetting;
pub use options::{OptionError, StreamOptions};
pub use receiver::StreamReceiver;
pub use sender::StreamSender;
