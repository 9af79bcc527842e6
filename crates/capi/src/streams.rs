//! Byte streams, for `farwrite.h`.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use farwrite_stream::{ConnectionExt, ReadHalf, Stream, StreamCloser, StreamOptions, WriteHalf};

use crate::connections::{Connected, late, limit};
use crate::failure::Failure;

/// What `farwrite_stream` names. One thread may read while another one writes.
pub(crate) struct Streaming {
    reader: Mutex<ReadHalf>,
    writer: Mutex<WriteHalf>,
    closer: StreamCloser,
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::TimedOut => late(),
        _ => Failure::new(error.to_string()),
    }
}

fn of_stream(error: &farwrite_stream::Error) -> Failure {
    match error {
        farwrite_stream::Error::TimedOut => late(),
        _ => Failure::new(error.to_string()),
    }
}

/// Takes a half for a call. It is not waited for: a second call at the same time is an error.
fn enter<T>(half: &Mutex<T>) -> Result<MutexGuard<'_, T>, Failure> {
    match half.try_lock() {
        Ok(half) => Ok(half),
        Err(TryLockError::Poisoned(poisoned)) => Ok(PoisonError::into_inner(poisoned)),
        Err(TryLockError::WouldBlock) => Err(Failure::new(
            "another thread reads from the stream, or writes to it: one may do each",
        )),
    }
}

impl Streaming {
    fn new(stream: Stream) -> Self {
        let closer = stream.closer();
        let (reader, writer) = stream.split();
        Self {
            closer,
            reader: Mutex::new(reader),
            writer: Mutex::new(writer),
        }
    }

    pub(crate) fn open(
        connection: &Connected,
        name: &str,
        timeout_ms: u32,
    ) -> Result<Self, Failure> {
        let options = StreamOptions::default();
        let opened = connection.0.open_stream(name, &options, limit(timeout_ms));
        Ok(Self::new(opened.map_err(|error| of_stream(&error))?))
    }

    pub(crate) fn accept(
        connection: &Connected,
        name: Option<&str>,
        timeout_ms: u32,
    ) -> Result<Self, Failure> {
        let options = StreamOptions::default();
        let accepted = connection
            .0
            .accept_stream(name, &options, limit(timeout_ms));
        let (_, stream) = accepted
            .map_err(|error| of_stream(&error))?
            .ok_or_else(late)?;
        Ok(Self::new(stream))
    }

    /// Reads up to `out.len()` bytes; 0 at the end of the stream.
    pub(crate) fn read(&self, out: &mut [u8], timeout_ms: u32) -> Result<usize, Failure> {
        let mut reader = enter(&self.reader)?;
        reader.set_timeout(Some(limit(timeout_ms)));
        reader.read(out).map_err(|error| failure(&error))
    }

    /// Writes some of `bytes`.
    pub(crate) fn write(&self, bytes: &[u8], timeout_ms: u32) -> Result<usize, Failure> {
        let mut writer = enter(&self.writer)?;
        writer.set_timeout(Some(limit(timeout_ms)));
        writer.write(bytes).map_err(|error| failure(&error))
    }

    /// Ends both directions, and the calls of other threads that wait.
    pub(crate) fn close(&self) {
        self.closer.close();
    }

    /// Ends the direction, and waits until the peer has everything.
    pub(crate) fn finish(&self, timeout_ms: u32) -> Result<(), Failure> {
        let mut writer = enter(&self.writer)?;
        writer.set_timeout(Some(limit(timeout_ms)));
        writer.finish();
        writer.wait_delivered().map_err(|error| of_stream(&error))
    }
}
