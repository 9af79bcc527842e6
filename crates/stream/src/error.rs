//! Why a stream carries no more bytes.

use std::io;
use std::sync::Arc;

use farwrite_connection::Ended;

use crate::options::OptionError;

/// Why a call on a stream failed. A stream that failed once gives the same error again.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer has given up the direction to this end.
    #[error("the peer has reset the stream, with code {0}")]
    Reset(u32),
    /// The peer reads no more.
    #[error("the peer has stopped reading the stream, with code {0}")]
    Stopped(u32),
    /// This end has ended its direction, or has given it up.
    #[error("this end has ended the stream, and cannot write more")]
    Finished,
    /// This end has stopped reading.
    #[error("this end has stopped reading the stream")]
    NotReading,
    /// This end has closed the stream during the call ([`StreamControl::close`](crate::StreamControl::close)).
    #[error("this end has closed the stream")]
    Closed,
    /// The peer has sent what a correct peer does not send.
    #[error("the peer broke the protocol of streams: {0}")]
    Violation(&'static str),
    /// A message of the stream failed, so bytes are missing.
    #[error("message {0} of the stream did not arrive whole: the peer has given it up")]
    MessageFailed(u64),
    /// A call took longer than its time limit. The stream goes on.
    #[error("the stream made no progress within the time limit")]
    TimedOut,
    /// A stream could not be opened over a connection.
    #[error(transparent)]
    Connection(#[from] farwrite_connection::Error),
    /// The connection of the stream is over.
    #[error("the connection of the stream is over: {0}")]
    ConnectionEnded(Ended),
    /// The endpoint of the stream has ended.
    #[error("the endpoint of the stream has ended")]
    Ended,
    /// An option is out of range.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The queue pair of the stream is broken.
    #[error(transparent)]
    Endpoint(#[from] Arc<farwrite::Error>),
}

impl Error {
    /// Why there is no connection, or none any more; `None` for errors of the stream alone.
    #[must_use]
    pub fn of_connection(&self) -> Option<farwrite_connection::Error> {
        match self {
            Self::Connection(error) => Some(error.clone()),
            Self::ConnectionEnded(ended) => Some(ended.clone().into()),
            _ => None,
        }
    }
}

impl From<farwrite::Error> for Error {
    fn from(error: farwrite::Error) -> Self {
        Self::Endpoint(Arc::new(error))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Reset(_) => io::ErrorKind::ConnectionReset,
            Error::Stopped(_) | Error::Finished | Error::NotReading | Error::Closed => {
                io::ErrorKind::BrokenPipe
            }
            Error::Violation(_) => io::ErrorKind::InvalidData,
            Error::MessageFailed(_) | Error::Ended | Error::ConnectionEnded(_) => {
                io::ErrorKind::ConnectionAborted
            }
            Error::TimedOut => io::ErrorKind::TimedOut,
            Error::Options(_) => io::ErrorKind::InvalidInput,
            Error::Endpoint(_) | Error::Connection(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
