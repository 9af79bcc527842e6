//! Records and messages of a channel, without I/O (P7.4).

use std::sync::Arc;

use snow::StatelessTransportState;

use crate::encoding::{decode, encode_after};
use crate::handshake::TAG_BYTES;
use crate::{ChannelMessage, Error};

/// The maximum number of bytes of a record's ciphertext (Noise specification, section 3).
const MAX_RECORD_BYTES: usize = 65_535;
/// The maximum number of bytes of a record's plaintext.
const MAX_PLAIN_BYTES: usize = MAX_RECORD_BYTES - TAG_BYTES;
/// Bytes of a record's length, in front of it.
const LENGTH_BYTES: usize = 2;
/// Bytes of a message's length, in front of it in its first record.
const PREFIX_BYTES: usize = 4;

/// Converts messages to records, numbered in order.
pub struct RecordSealer {
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
}

impl RecordSealer {
    pub(crate) fn new(state: Arc<StatelessTransportState>, next: u64) -> Self {
        Self { state, next }
    }

    /// The records of a message.
    ///
    /// # Errors
    /// [`Error::TooLong`] for more than [`ChannelMessage::MAX_BYTES`]. This uses up no record.
    pub fn seal<T: ChannelMessage>(&mut self, message: &T) -> Result<Vec<u8>, Error> {
        let mut plain = encode_after(vec![0; PREFIX_BYTES], message)?;
        let length = plain.len() - PREFIX_BYTES;
        let prefix = u32::try_from(length).map_err(|_| Error::TooLong {
            name: T::NAME,
            came: length,
            max: T::MAX_BYTES,
        })?;
        plain[..PREFIX_BYTES].copy_from_slice(&prefix.to_be_bytes());
        let chunks = plain.chunks(MAX_PLAIN_BYTES);
        let mut records =
            Vec::with_capacity(plain.len() + chunks.len() * (LENGTH_BYTES + TAG_BYTES));
        for chunk in chunks {
            self.seal_record(chunk, &mut records)?;
        }
        Ok(records)
    }

    /// Appends one record, of at most 65519 bytes of plaintext.
    ///
    /// # Errors
    /// [`Error::Noise`] for more plaintext, and when the numbers of records are used up.
    pub fn seal_record(&mut self, plain: &[u8], records: &mut Vec<u8>) -> Result<(), Error> {
        let sealed_bytes = plain.len() + TAG_BYTES;
        let length = u16::try_from(sealed_bytes).map_err(|_| Error::Noise(snow::Error::Input))?;
        records.extend_from_slice(&length.to_be_bytes());
        let start = records.len();
        records.resize(start + sealed_bytes, 0);
        self.state
            .write_message(self.next, plain, &mut records[start..])
            .map_err(Error::Noise)?;
        self.next += 1;
        Ok(())
    }
}

/// Assembles messages from the bytes of a connection.
pub struct RecordOpener {
    state: Arc<StatelessTransportState>,
    /// Number of the next record.
    next: u64,
    /// The received bytes of the current record, with its length in front.
    record: Vec<u8>,
    /// The received bytes of the current message.
    message: Vec<u8>,
    /// The total length of the message; `None` before its first record.
    length: Option<usize>,
}

impl RecordOpener {
    pub(crate) fn new(state: Arc<StatelessTransportState>, next: u64) -> Self {
        Self {
            state,
            next,
            record: Vec::new(),
            message: Vec::new(),
            length: None,
        }
    }

    /// Consumes bytes from the front of `bytes` up to the end of a message. Returns `None` if the
    /// bytes end first.
    ///
    /// # Errors
    /// [`Error::RecordLength`], [`Error::Forged`], [`Error::TooLong`], [`Error::Malformed`]. The
    /// channel cannot recover from any of them.
    pub fn receive<T: ChannelMessage>(&mut self, bytes: &mut &[u8]) -> Result<Option<T>, Error> {
        while self.length != Some(self.message.len()) {
            if !self.fill_record(bytes)? {
                return Ok(None);
            }
            self.open_record(T::NAME, T::MAX_BYTES)?;
        }
        let message = decode(&self.message)?;
        self.length = None;
        self.message.clear();
        Ok(Some(message))
    }

    /// Returns whether no byte of the next message has arrived.
    pub fn is_between_messages(&self) -> bool {
        self.record.is_empty() && self.length.is_none()
    }

    /// Consumes bytes of one record. Returns whether the record is complete.
    fn fill_record(&mut self, bytes: &mut &[u8]) -> Result<bool, Error> {
        loop {
            let want = match self.record.first_chunk() {
                None => LENGTH_BYTES,
                Some(length) => LENGTH_BYTES + usize::from(u16::from_be_bytes(*length)),
            };
            if self.record.len() == LENGTH_BYTES && want < LENGTH_BYTES + TAG_BYTES {
                return Err(Error::RecordLength {
                    came: want - LENGTH_BYTES,
                    min: TAG_BYTES,
                });
            }
            let missing = want - self.record.len();
            if missing == 0 {
                return Ok(true);
            }
            if bytes.is_empty() {
                return Ok(false);
            }
            let (taken, rest) = bytes.split_at(missing.min(bytes.len()));
            self.record.extend_from_slice(taken);
            *bytes = rest;
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
