//! The channel of a transfer: messages of any length, in order, over one stream of a connection, and notices, which
//! overtake them (P8.11).

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::task::Waker;
use std::time::{Duration, Instant};

use farwrite::QpOptions;
use farwrite_connection::{ByeCause, Connection, Ended, Error as ConnectionError};
use farwrite_files::Message;
use farwrite_keys::{ChannelMessage, Error as SessionError, Proof, decode, encode};
use farwrite_stream::{
    ConnectionExt, Error as StreamError, ReadHalf, StreamControl, StreamOptions, WriteHalf,
};

use crate::notices::Notices;

/// The name of the stream.
const NAME: &str = "farwrite files";
/// Bytes of a message's length, in front of it.
const PREFIX_BYTES: usize = 4;
/// The most bytes that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// The longest time between two looks for a notice on an idle stream, and between two calls of a writer's `meanwhile`.
const LOOK: Duration = Duration::from_millis(50);
/// The time between two looks for a notice while the stream is never idle.
const LOOK_WHEN_BUSY: Duration = Duration::from_millis(250);
/// The time limit for the last message, and for the end of the connection, with a peer that may be gone.
pub(crate) const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// Why a channel could not be set up, or ended. Every variant except [`ChannelError::Timeout`] (when reading) and
/// a message that is too long (when sending) ends the channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The time limit expired.
    #[error("the peer sent nothing within {after:.1?}")]
    Timeout {
        /// The time limit.
        after: Duration,
    },
    /// The peer has closed the channel between two messages.
    #[error("the peer closed the connection")]
    Closed,
    /// The channel ended within a message.
    #[error("the connection ended within a message")]
    Truncated,
    /// An earlier error, or this end, has ended the channel.
    #[error("the channel is over: this end closed it, or an earlier error ended it")]
    Over,
    /// Bytes that are not a message, or a message that is too long. It is refused before it is stored.
    #[error(transparent)]
    Message(#[from] SessionError),
    /// The connection was not made, or is over.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The stream broke.
    #[error(transparent)]
    Stream(StreamError),
}

impl ChannelError {
    /// Why there is no connection, or none any more; `None` for other errors.
    pub(crate) fn of_connection(&self) -> Option<ConnectionError> {
        match self {
            Self::Connection(error) => Some(error.clone()),
            _ => None,
        }
    }
}

impl From<StreamError> for ChannelError {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Connection(error) => error.into(),
            StreamError::ConnectionEnded(Ended::ByPeer {
                cause: ByeCause::Closed,
                ..
            }) => Self::Closed,
            StreamError::ConnectionEnded(Ended::Closed) => Self::Over,
            StreamError::ConnectionEnded(ended) => Self::Connection(ConnectionError::Over(ended)),
            StreamError::Closed | StreamError::NotReading | StreamError::Finished => Self::Over,
            // The peer has dropped its end of the stream.
            StreamError::Stopped(_) | StreamError::Reset(_) => Self::Closed,
            error => Self::Stream(error),
        }
    }
}

impl From<io::Error> for ChannelError {
    fn from(error: io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        match cause {
            Some(error) => StreamError::clone(error).into(),
            None => Self::Over,
        }
    }
}

/// A channel to a peer that has proven who it is.
#[derive(Debug)]
pub struct Channel {
    reader: Reader,
    writer: Writer,
    close_handle: CloseHandle,
    peer: SocketAddr,
    local: SocketAddr,
    proof: Proof,
}

/// Ends a channel from any thread.
#[derive(Clone)]
pub(crate) struct CloseHandle {
    connection: Connection,
    stream: StreamControl,
}

/// The receiving half of a [`Channel`].
#[derive(Debug)]
pub(crate) struct Reader {
    stream: ReadHalf,
    notices: Notices,
    /// How many notices have come, and when this was looked at.
    heard: u64,
    looked_at: Instant,
    timeout: Option<Duration>,
    incoming: Incoming,
    /// Bytes that have been read and not been used.
    buffer: Vec<u8>,
    is_over: bool,
}

/// The sending half of a [`Channel`].
#[derive(Debug)]
pub(crate) struct Writer {
    stream: WriteHalf,
    is_over: bool,
}

/// The memory and the losses of the channel: the names of a large tree are megabytes.
fn options() -> StreamOptions {
    StreamOptions {
        message_bytes: 32 << 10,
        messages: 64,
        ..StreamOptions::default()
    }
}

impl Channel {
    /// The packets of the channel. Each path of a connection carries such packets, so a connection for files need
    /// not look for larger ones.
    pub const MTU: u32 = 1024;

    /// The name and the options of the queue pair of a channel, for [`farwrite_connection::ConnectionOptions::first`].
    pub(crate) fn first() -> (String, QpOptions) {
        let mut base = QpOptions::default();
        base.sdr.mtu = Self::MTU;
        (NAME.to_owned(), options().queue_pair(&base))
    }

    /// Opens the channel over a connection, and waits for the peer at most `limit`.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn open(connection: &Connection, limit: Duration) -> Result<Self, ChannelError> {
        let stream = connection.open_stream(NAME, &options(), limit)?;
        Self::over(connection, stream)
    }

    /// Waits until the peer opens the channel, at most `limit`, and returns `None` after that.
    ///
    /// # Errors
    /// [`ChannelError`].
    pub fn accept(connection: &Connection, limit: Duration) -> Result<Option<Self>, ChannelError> {
        let accepted = connection.accept_stream(Some(NAME), &options(), limit)?;
        let over = |(_, stream)| Self::over(connection, stream);
        accepted.map(over).transpose()
    }

    fn over(
        connection: &Connection,
        stream: farwrite_stream::Stream,
    ) -> Result<Self, ChannelError> {
        let addresses = connection.local_addr().zip(connection.peer_addr());
        // A connection without addresses is over.
        let Some((local, peer)) = addresses else {
            let ended = connection.ended().unwrap_or(Ended::Closed);
            return Err(ConnectionError::Over(ended).into());
        };
        let close_handle = CloseHandle {
            connection: connection.clone(),
            stream: stream.control(),
        };
        let (reader, writer) = stream.split();
        Ok(Self {
            reader: Reader {
                stream: reader,
                notices: close_handle.notices(),
                heard: 0,
                looked_at: Instant::now(),
                timeout: None,
                incoming: Incoming::default(),
                buffer: Vec::new(),
                is_over: false,
            },
            writer: Writer {
                stream: writer,
                is_over: false,
            },
            close_handle,
            peer,
            local,
            proof: connection.peer().proof(),
        })
    }

    /// The address of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// How the peer has proven who it is.
    pub(crate) fn proof(&self) -> Proof {
        self.proof
    }

    /// The address of this end on the way to the peer.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends a message. Returns when it has room to wait for its turn.
    ///
    /// # Errors
    /// [`ChannelError::Message`] for more than [`ChannelMessage::MAX_BYTES`]: nothing is sent. After any other one,
    /// later calls return only [`ChannelError::Over`].
    pub fn send(&mut self, message: &Message) -> Result<(), ChannelError> {
        self.writer.send(message, || {})
    }

    /// Waits for a message or a notice. After [`ChannelError::Timeout`] it may be called again: the received bytes of
    /// a message are kept.
    ///
    /// # Errors
    /// [`ChannelError`]; [`ChannelError::Over`] after any but a timeout, and when this end has closed the channel.
    pub fn recv(&mut self) -> Result<Message, ChannelError> {
        self.reader.recv()
    }

    /// Limits how long one call of [`Channel::recv`] takes in total; `None` is forever. With zero, a
    /// call reads only the bytes that are already available.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.set_timeout(timeout);
    }

    /// Returns the two halves, so that one thread can read while another writes.
    pub(crate) fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }

    /// Returns what ends the channel from any thread, also after [`Channel::split`].
    pub(crate) fn close_handle(&self) -> CloseHandle {
        self.close_handle.clone()
    }

    /// Sends the last notice, and ends the channel when the peer has it, or after a second.
    pub(crate) fn end(self, notice: &Message) {
        // If this fails, the peer notices the end of the channel.
        let _ = self.close_handle.notices().notify(notice);
        self.close_handle.close();
    }
}

impl CloseHandle {
    /// The notices of both ends.
    pub(crate) fn notices(&self) -> Notices {
        Notices(self.connection.clone())
    }

    /// As [`CloseHandle::close`], when all was said and both ends know it. Does not wait for the peer.
    pub(crate) fn depart(&self) {
        self.stream.close();
        self.connection.depart(LAST_MESSAGE);
    }

    /// Ends the channel: what waits on it fails with [`ChannelError::Over`]. Waits until the peer knows it, at most a
    /// second.
    pub(crate) fn close(&self) {
        // The end of the stream would overtake the last notice.
        self.connection.finish(LAST_MESSAGE);
        self.stream.close();
    }
}

impl Writer {
    /// As [`Channel::send`]. Calls `meanwhile` again and again.
    pub(crate) fn send(
        &mut self,
        message: &Message,
        mut meanwhile: impl FnMut(),
    ) -> Result<(), ChannelError> {
        if self.is_over {
            return Err(ChannelError::Over);
        }
        let bytes = framed(message)?;
        let mut left = &bytes[..];
        self.stream.set_timeout(Some(LOOK));
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => {
                    self.is_over = true;
                    return Err(error.into());
                }
            }
            meanwhile();
        }
        Ok(())
    }

    /// Waits until the peer has all messages. Calls `meanwhile` again and again.
    pub(crate) fn wait_delivered(
        &mut self,
        mut meanwhile: impl FnMut(),
    ) -> Result<(), ChannelError> {
        self.stream.set_timeout(Some(LOOK));
        loop {
            match self.stream.wait_delivered() {
                Err(StreamError::TimedOut) => meanwhile(),
                delivered => return Ok(delivered?),
            }
        }
    }
}

impl Reader {
    /// As [`Channel::set_read_timeout`].
    pub(crate) fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Whether something has come that was not read. If not, `waker` is woken when something comes, except a notice.
    pub(crate) fn is_ready(&self, waker: &Waker) -> bool {
        !self.buffer.is_empty() || self.notices.count() > self.heard || self.stream.is_ready(waker)
    }

    /// As [`Channel::recv`].
    pub(crate) fn recv(&mut self) -> Result<Message, ChannelError> {
        if self.is_over {
            return Err(ChannelError::Over);
        }
        let received = self.receive();
        self.is_over = !matches!(received, Ok(_) | Err(ChannelError::Timeout { .. }));
        received
    }

    fn receive(&mut self) -> Result<Message, ChannelError> {
        let start = Instant::now();
        loop {
            // A sign of life does not wait for what the peer said before it, if there is always more of that.
            if self.looked_at.elapsed() >= LOOK_WHEN_BUSY
                && let Some(sign) = self.next_notice(0)?
            {
                return Ok(sign);
            }
            let mut unused = &self.buffer[..];
            let received = self.incoming.take(&mut unused)?;
            let used = self.buffer.len() - unused.len();
            self.buffer.drain(..used);
            if let Some(message) = received {
                return Ok(message);
            }
            let left = self
                .timeout
                .map(|timeout| timeout.saturating_sub(start.elapsed()));
            let is_last = left.is_some_and(|left| left <= LOOK);
            let wait = left.unwrap_or(LOOK).min(LOOK);
            let (read, before) = self.read_with(wait, |stream, buffer| stream.read(buffer));
            if self.buffer.is_empty()
                && let Some(notice) = self.next_notice(before)?
            {
                return Ok(notice);
            }
            match read {
                Ok(0) if self.incoming.is_between_messages() => return Err(ChannelError::Closed),
                Ok(0) => return Err(ChannelError::Truncated),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut && is_last => {
                    let after = self.timeout.unwrap_or_default();
                    return Err(ChannelError::Timeout { after });
                }
                Err(error) if error.kind() == ErrorKind::TimedOut => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads with `read` for up to this time, if no notice has come. Returns the result too, and how many notices may be
    /// taken now if one is an abort.
    fn read_with(
        &mut self,
        wait: Duration,
        read: impl FnOnce(&mut ReadHalf, &mut [u8]) -> io::Result<usize>,
    ) -> (io::Result<usize>, u64) {
        // What the peer said before these notices can be read now.
        let notices = self.notices.count();
        let has_new = notices > self.heard;
        let wait = if has_new { Duration::ZERO } else { wait };
        self.stream.set_timeout(Some(wait));
        self.buffer.resize(READ_BYTES, 0);
        let read = read(&mut self.stream, &mut self.buffer);
        self.buffer.truncate(read.as_ref().map_or(0, |read| *read));
        let has_timed_out = matches!(&read, Err(error) if error.kind() == ErrorKind::TimedOut);
        // After the end of the stream, nothing comes before an abort.
        (read, if has_timed_out { notices } else { u64::MAX })
    }

    /// The last notice of the peer, if it is new. An abort stays unread unless it was among the first `before` notices:
    /// the messages that the peer sent before the abort are read first.
    fn next_notice(&mut self, before: u64) -> Result<Option<Message>, ChannelError> {
        self.looked_at = Instant::now();
        let Some((count, notice)) = self.notices.after(self.heard)? else {
            return Ok(None);
        };
        if count > before && matches!(notice, Message::Abort { .. }) {
            return Ok(None);
        }
        self.heard = count;
        Ok(Some(notice))
    }
}

/// The bytes of a message on the stream.
///
/// # Errors
/// [`SessionError::TooLong`].
pub fn framed(message: &Message) -> Result<Vec<u8>, SessionError> {
    let bytes = encode(message)?;
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    Ok([&length.to_be_bytes()[..], &bytes].concat())
}

/// Assembles messages from the bytes of a stream.
#[derive(Debug, Default)]
pub struct Incoming {
    /// The received bytes of the length.
    prefix: Vec<u8>,
    /// The received bytes of the message.
    message: Vec<u8>,
}

impl Incoming {
    /// Consumes bytes from the front of `bytes` up to the end of a message. Returns `None` if the bytes end first. A
    /// message takes memory only as its bytes come.
    ///
    /// # Errors
    /// [`SessionError::TooLong`], [`SessionError::Malformed`]. The channel cannot go on after either.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Message>, SessionError> {
        fill(&mut self.prefix, PREFIX_BYTES, bytes);
        let Ok(prefix) = <[u8; PREFIX_BYTES]>::try_from(&self.prefix[..]) else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
        if length > Message::MAX_BYTES {
            return Err(SessionError::TooLong {
                name: Message::NAME,
                came: length,
                max: Message::MAX_BYTES,
            });
        }
        fill(&mut self.message, length, bytes);
        if self.message.len() < length {
            return Ok(None);
        }
        let message = decode(&self.message)?;
        self.prefix.clear();
        self.message.clear();
        Ok(Some(message))
    }

    /// Whether no byte of the next message has come.
    #[must_use]
    pub fn is_between_messages(&self) -> bool {
        self.prefix.is_empty()
    }
}

/// Moves bytes to `part` until it has `length`.
fn fill(part: &mut Vec<u8>, length: usize, bytes: &mut &[u8]) {
    let missing = length.saturating_sub(part.len());
    let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
    part.extend_from_slice(taken);
    *bytes = rest;
}

impl fmt::Debug for CloseHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CloseHandle").finish_non_exhaustive()
    }
}
