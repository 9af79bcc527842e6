//! Byte streams over the messages of a queue pair: ordered, reliable, in both directions.
//!
//! A stream has a queue pair of its own, so a stream that nobody reads does not hold up another.
//! What is written is gathered into messages, each repaired by a scheme of choice. The reader posts
//! buffers, and posts them again when they were read: that is the back pressure. Either end can end
//! its direction, give it up with a code, or ask the peer to send no more. docs/streams.md describes
//! behaviour and limits, P13 what crosses the network.
//!
//! [`Stream`] is a stream for threads, with `Read` and `Write`. [`ByteStream`] is a stream without I/O,
//! clock and thread.

mod buffers;
mod byte_stream;
mod error;
mod message;
mod options;
mod receiver;
mod scheme;
mod sender;
mod shared;
mod stream;
mod task;

pub use byte_stream::ByteStream;
pub use error::Error;
pub use farwrite_choice::SchemeSetting;
pub use options::{OptionError, StreamOptions};
pub use receiver::StreamReceiver;
pub use sender::StreamSender;
pub use stream::{ReadHalf, Stream, WriteHalf};
pub use task::StreamTask;
