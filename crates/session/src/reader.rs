//! The receiving half of a channel (P7.4).

use std::fmt;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use snow::StatelessTransportState;

use crate::channel::{LENGTH_BYTES, MAX_RECORD_BYTES, PREFIX_BYTES};
use crate::handshake::TAG_BYTES;
use crate::{ChannelMessage, Error};

/// The receiving half of a [`Channel`](crate::Channel).
pub struct Reader {
    stream: BufReader<TcpStream>,
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
    timeout: Option<Duration>,
    /// The bytes so far of the record that is coming in, its length in front.
    record: Vec<u8>,
    /// The bytes so far of the message that is coming in.
    message: Vec<u8>,
    /// How many there will be; `None` before its first record.
    length: Option<usize>,
    over: bool,
}

impl Reader {
    pub(crate) fn new(stream: TcpStream, state: Arc<StatelessTransportState>, next: u64) -> Self {
        Self {
            stream: BufReader::with_capacity(LENGTH_BYTES + MAX_RECORD_BYTES, stream),
            state,
            next,
            timeout: None,
            record: Vec::new(),
            message: Vec::new(),
            length: None,
            over: false,
        }
    }

    /// Limits how long [`Reader::recv`] waits for the next bytes; `None` is forever.
    ///
    /// # Errors
    /// [`Error::Io`] for a zero timeout.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.stream
            .get_ref()
            .set_read_timeout(timeout)
            .map_err(|source| Error::Io {
                doing: "setting a time limit",
                source,
            })?;
        self.timeout = timeout;
        Ok(())
    }

    /// Waits for a message. After [`Error::Timeout`] it may be called again: what has come of a
    /// message is kept.
    ///
    /// # Errors
    /// [`Error::Closed`] when the peer closed between two messages, [`Error::Truncated`] within
    /// one; [`Error::Timeout`], [`Error::Io`], [`Error::RecordLength`], [`Error::Forged`],
    /// [`Error::TooLong`], [`Error::Malformed`]; [`Error::Over`] after any but a timeout. A record that
    /// does not verify ends the connection; after other errors this end can still send.
    pub fn recv<T: ChannelMessage>(&mut self) -> Result<T, Error> {
        if self.over {
            return Err(Error::Over);
        }
        let received = self.receive();
        self.over = !matches!(received, Ok(_) | Err(Error::Timeout { .. }));
        if let Err(Error::Forged | Error::RecordLength { .. }) = received {
            // Somebody is in between: what this end would still say may not arrive either.
            let _ = self.stream.get_ref().shutdown(Shutdown::Both);
        }
        received
    }

    fn receive<T: ChannelMessage>(&mut self) -> Result<T, Error> {
        while self.length != Some(self.message.len()) {
            self.fill_record()?;
            self.open_record(T::NAME, T::MAX_BYTES)?;
        }
        let malformed = |why| Error::Malformed {
            name: T::NAME,
            came_bytes: self.message.len(),
            why,
        };
        let (message, rest) = postcard::take_from_bytes(&self.message)
            .map_err(|error| malformed(error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed(format!("{} bytes too many", rest.len())));
        }
        self.length = None;
        self.message.clear();
        Ok(message)
    }

    /// Reads on until `record` holds a whole one.
    fn fill_record(&mut self) -> Result<(), Error> {
        loop {
            let want = match self.record.first_chunk() {
                None => LENGTH_BYTES,
                Some(length) => LENGTH_BYTES + usize::from(u16::from_be_bytes(*length)),
            };
            let missing = want - self.record.len();
            if want > LENGTH_BYTES && missing == 0 {
                return Ok(());
            }
            if self.record.len() == LENGTH_BYTES && want < LENGTH_BYTES + TAG_BYTES {
                return Err(Error::RecordLength {
                    came: want - LENGTH_BYTES,
                    min: TAG_BYTES,
                });
            }
            let came = match self.stream.fill_buf() {
                Ok([]) if self.record.is_empty() && self.length.is_none() => {
                    return Err(Error::Closed);
                }
                Ok([]) => return Err(Error::Truncated),
                Ok(came) => came,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Error::io("receiving", self.timeout, error)),
            };
            let taken = missing.min(came.len());
            self.record.extend_from_slice(&came[..taken]);
            self.stream.consume(taken);
        }
    }

    /// Decrypts the record and adds it to the message.
    fn open_record(&mut self, name: &'static str, max: usize) -> Result<(), Error> {
        let sealed = self.record.get(LENGTH_BYTES..).unwrap_or_default();
        let mut plain = vec![0; sealed.len()];
        let length = self
            .state
            .read_message(self.next, sealed, &mut plain)
            .map_err(|_| Error::Forged)?;
        plain.truncate(length);
        self.next += 1;
        self.record.clear();
        let mut body = &plain[..];
        if self.length.is_none() {
            let Some((prefix, rest)) = plain.split_first_chunk::<PREFIX_BYTES>() else {
                return Err(Error::Malformed {
                    name,
                    came_bytes: plain.len(),
                    why: "no length in front".into(),
                });
            };
            let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
            if length > max {
                return Err(Error::TooLong {
                    name,
                    came: length,
                    max,
                });
            }
            self.length = Some(length);
            body = rest;
        }
        let room = self.length.unwrap_or(0) - self.message.len();
        if body.len() > room || (body.is_empty() && room > 0) {
            return Err(Error::Malformed {
                name,
                came_bytes: body.len(),
                why: format!("{room} bytes of it were still to come"),
            });
        }
        self.message.extend_from_slice(body);
        Ok(())
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
