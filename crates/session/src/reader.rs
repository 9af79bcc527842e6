//! The receiving half of a channel (P7.4).

use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::records::RecordOpener;
use crate::socket::Socket;
use crate::time_limit::TimeLimit;
use crate::{Activity, ChannelMessage, Error};

/// The maximum number of bytes of one read of the socket.
const BUFFER_BYTES: usize = 64 << 10;

/// The receiving half of a [`Channel`](crate::Channel).
pub struct Reader {
    socket: Arc<Socket>,
    incoming: RecordOpener,
    timeout: Option<Duration>,
    /// Holds the bytes of one read of the socket.
    buffer: Box<[u8]>,
    /// The part of the buffer that was not used yet.
    unused: Range<usize>,
    over: bool,
}

impl Reader {
    pub(crate) fn new(socket: Arc<Socket>, incoming: RecordOpener) -> Self {
        Self {
            socket,
            incoming,
            timeout: None,
            buffer: vec![0; BUFFER_BYTES].into(),
            unused: 0..0,
            over: false,
        }
    }

    /// Limits how long one call of [`Reader::recv`] takes in total; `None` is forever. With zero, a
    /// call reads only the bytes that are already available.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Waits for a message. After [`Error::Timeout`] it may be called again: the received bytes of
    /// a message are kept.
    ///
    /// # Errors
    /// [`Error::Closed`] when the peer closed between two messages, [`Error::Truncated`] within
    /// one; [`Error::Timeout`], [`Error::Io`], [`Error::RecordLength`], [`Error::Forged`],
    /// [`Error::TooLong`], [`Error::Malformed`]; [`Error::Over`] after any but a timeout, and when
    /// a [`CloseHandle`](crate::CloseHandle) ended the channel. A record that does not verify ends the
    /// connection; after other errors this end can still send.
    pub fn recv<T: ChannelMessage>(&mut self) -> Result<T, Error> {
        if self.over || self.socket.is_closed() {
            return Err(Error::Over);
        }
        let received = self.receive();
        self.over = !matches!(received, Ok(_) | Err(Error::Timeout { .. }));
        if let Err(Error::Forged | Error::RecordLength { .. }) = received {
            // An attacker on the path changes bytes, so this end's messages may not arrive either.
            self.socket.shut_down();
        }
        if received.is_err() && self.socket.is_closed() {
            return Err(Error::Over);
        }
        received
    }

    fn receive<T: ChannelMessage>(&mut self) -> Result<T, Error> {
        let limit = TimeLimit::new(self.timeout);
        let mut has_read = false;
        loop {
            let mut bytes = &self.buffer[self.unused.clone()];
            let received = self.incoming.receive(&mut bytes);
            self.unused.start = self.unused.end - bytes.len();
            if let Some(message) = received? {
                return Ok(message);
            }
            if has_read {
                limit.check(Activity::Receiving)?;
            }
            let read = self.read(limit)?;
            self.unused = 0..read;
            has_read = true;
        }
    }

    /// Reads the next bytes into the buffer, whose contents were all used. Returns how many there
    /// are.
    fn read(&mut self, limit: TimeLimit) -> Result<usize, Error> {
        loop {
            match self.socket.read(&mut self.buffer) {
                Ok(0) if self.incoming.is_between_messages() => return Err(Error::Closed),
                Ok(0) => return Err(Error::Truncated),
                Ok(read) => return Ok(read),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    limit.wait(&*self.socket, PollFlags::IN, Activity::Receiving)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(Error::Io {
                        doing: Activity::Receiving,
                        source,
                    });
                }
            }
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}
