//! Byte streams over the messages of a queue pair: ordered, reliable, in both directions.
//!
//! A stream has a queue pair of its own, so a stream that nobody reads does not hold up another.
//! What is written is gathered into messages, each repaired by a scheme of choice. The reader posts
//! buffers, and posts them again when they were read: that is the back pressure. Either end can end
//! its direction, give it up with a code, or ask the peer to send no more. docs/streams.md describes
//! behaviour and limits, P13 what crosses the network.
//!
//! [`ConnectionExt`] opens and accepts streams over a connection. [`Stream`] is a stream for
//! threads, with `Read` and `Write`. With the feature `tokio` it also has `AsyncRead` and
//! `AsyncWrite`, and `Outcomes` has futures for messages. [`ByteStream`] is a stream without I/O,
//! clock and thread.

mod buffers;
mod byte_stream;
mod connection;
mod cutover;
mod error;
mod message;
mod options;
#[cfg(feature = "tokio")]
mod outcomes;
mod receiver;
mod sender;
mod shared;
mod stream;
mod task;
#[cfg(feature = "tokio")]
mod tokio_io;

pub use byte_stream::ByteStream;
pub use connection::ConnectionExt;
pub use error::Error;
pub use farwrite_choice::SchemeSetting;
pub use message::Head;
pub use options::{OptionError, StreamOptions};
#[cfg(feature = "tokio")]
pub use outcomes::{Outcomes, OutcomesTask};
pub use receiver::StreamReceiver;
pub use sender::StreamSender;
pub use stream::{ReadHalf, Stream, StreamControl, WriteHalf};
pub use task::StreamTask;
