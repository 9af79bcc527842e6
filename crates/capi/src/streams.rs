//! Byte streams, for `farwrite.h`.

use std::ffi::c_int;
use std::io::{self, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use farwrite::QpStats;
use farwrite_connection::Connection;
use farwrite_stream::{ConnectionExt, ReadHalf, Stream, StreamControl, StreamOptions, WriteHalf};

use crate::connections::{Connected, gone, late, limit};
use crate::descriptors::Descriptor;
use crate::failure::Failure;

/// What `farwrite_stream` names. One thread may read while another one writes.
pub(crate) struct Streaming {
    reader: Mutex<ReadHalf>,
    writer: Mutex<WriteHalf>,
    control: StreamControl,
    connection: Connection,
    descriptors: [Descriptor; 2],
}

fn failure(error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::TimedOut => late(),
        _ => Failure::new(error.to_string()),
    }
}

impl From<farwrite_stream::Error> for Failure {
    fn from(error: farwrite_stream::Error) -> Self {
        match error {
            farwrite_stream::Error::TimedOut => late(),
            farwrite_stream::Error::Connection(error) => error.into(),
            _ => Self::new(error.to_string()),
        }
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
    fn new(connection: &Connected, stream: Stream) -> Self {
        let control = stream.control();
        let (reader, writer) = stream.split();
        Self {
            control,
            connection: connection.0.clone(),
            descriptors: Default::default(),
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
        Ok(Self::new(connection, opened?))
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
        let (_, stream) = accepted?.ok_or_else(late)?;
        Ok(Self::new(connection, stream))
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

    /// A descriptor that is readable while a read would not wait.
    pub(crate) fn read_descriptor(&self) -> Result<c_int, Failure> {
        self.descriptors[0].number(|| self.control.read_descriptor())
    }

    /// A descriptor that is readable while a write would not wait, or once a stream that was finished is
    /// delivered.
    pub(crate) fn write_descriptor(&self) -> Result<c_int, Failure> {
        self.descriptors[1].number(|| self.control.write_descriptor())
    }

    pub(crate) fn statistics(&self) -> Result<QpStats, Failure> {
        let qp = self.control.queue_pair();
        let thread = self.connection.thread();
        thread
            .call(move |endpoint| endpoint.qp_stats(qp))?
            .map_err(|error| gone(&self.connection, error))
    }

    /// Gives both directions up.
    pub(crate) fn reset(&self, code: u32) {
        self.control.reset(code);
    }

    /// The code with which the peer has given the stream up.
    pub(crate) fn peer_code(&self) -> Result<u32, Failure> {
        let code = self.control.peer_code();
        code.ok_or_else(|| Failure::Retry("the peer has not reset the stream".into()))
    }

    /// Ends both directions, and the calls of other threads that wait.
    pub(crate) fn close(&self) {
        self.control.close();
    }

    /// Ends the direction, and waits until the peer has everything.
    pub(crate) fn finish(&self, timeout_ms: u32) -> Result<(), Failure> {
        let mut writer = enter(&self.writer)?;
        writer.set_timeout(Some(limit(timeout_ms)));
        writer.finish();
        Ok(writer.wait_delivered()?)
    }
}
