//! The sending half of a channel (P7.4).

use std::fmt;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use snow::StatelessTransportState;

use crate::channel::{LENGTH_BYTES, MAX_PLAIN_BYTES, PREFIX_BYTES};
use crate::handshake::TAG_BYTES;
use crate::{ChannelMessage, Error};

/// The sending half of a [`Channel`](crate::Channel).
pub struct Writer {
    stream: TcpStream,
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
    timeout: Option<Duration>,
    over: bool,
}

impl Writer {
    pub(crate) fn new(stream: TcpStream, state: Arc<StatelessTransportState>, next: u64) -> Self {
        Self {
            stream,
            state,
            next,
            timeout: None,
            over: false,
        }
    }

    /// Limits how long [`Writer::send`] waits for a peer that takes nothing; `None` is forever.
    ///
    /// # Errors
    /// [`Error::Io`] for a zero timeout.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.stream
            .set_write_timeout(timeout)
            .map_err(|source| Error::Io {
                doing: "setting a time limit",
                source,
            })?;
        self.timeout = timeout;
        Ok(())
    }

    /// Sends a message; returns when the operating system has it.
    ///
    /// # Errors
    /// [`Error::TooLong`] for more than [`ChannelMessage::MAX_BYTES`], with nothing sent;
    /// [`Error::Timeout`] and [`Error::Io`], after which only [`Error::Over`] follows.
    pub fn send<T: ChannelMessage>(&mut self, message: &T) -> Result<(), Error> {
        if self.over {
            return Err(Error::Over);
        }
        let mut plain = vec![0; PREFIX_BYTES];
        plain = postcard::to_extend(message, plain).map_err(|error| Error::Malformed {
            name: T::NAME,
            came_bytes: 0,
            why: error.to_string(),
        })?;
        let length = plain.len() - PREFIX_BYTES;
        let prefix = u32::try_from(length)
            .ok()
            .filter(|_| length <= T::MAX_BYTES);
        let prefix = prefix.ok_or(Error::TooLong {
            name: T::NAME,
            came: length,
            max: T::MAX_BYTES,
        })?;
        plain[..PREFIX_BYTES].copy_from_slice(&prefix.to_be_bytes());
        let sent = self.seal(&plain).and_then(|records| self.write(&records));
        self.over = sent.is_err();
        sent
    }

    /// Ends the connection, both ways; a [`Reader`](crate::Reader) that waits in another thread returns.
    pub fn close(&mut self) {
        self.over = true;
        // It may have ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Cuts a message into records and encrypts them.
    fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let chunks = plain.chunks(MAX_PLAIN_BYTES);
        let mut records =
            Vec::with_capacity(plain.len() + chunks.len() * (LENGTH_BYTES + TAG_BYTES));
        for chunk in chunks {
            let sealed_bytes = chunk.len() + TAG_BYTES;
            let length = u16::try_from(sealed_bytes).unwrap_or(u16::MAX);
            records.extend_from_slice(&length.to_be_bytes());
            let start = records.len();
            records.resize(start + sealed_bytes, 0);
            self.state
                .write_message(self.next, chunk, &mut records[start..])
                .map_err(Error::Noise)?;
            self.next += 1;
        }
        Ok(records)
    }

    fn write(&mut self, records: &[u8]) -> Result<(), Error> {
        self.stream
            .write_all(records)
            .map_err(|error| Error::io("sending", self.timeout, error))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
