//! A handshake on a socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;

use crate::handshake::{Agreed, Failed, Handshake};
use crate::keys::{Accepted, Key};
use crate::time_limit::{CancellableLimit, TimeLimit};
use crate::{Activity, Error};

/// How many bytes, and how long, a refused peer may still send before the connection is closed.
const LINGER_BYTES: usize = 4096;
const LINGER: Duration = Duration::from_millis(500);
/// More than any step of a handshake reads.
const BUFFER_BYTES: usize = 128;

/// A connection whose handshake is in progress. Its socket does not block, so one thread can have
/// many.
pub(crate) struct PendingHandshake {
    stream: TcpStream,
    handshake: Handshake,
    /// Bytes for the peer that the socket has not accepted yet.
    unsent: Vec<u8>,
    /// Set when the handshake only has to send `unsent`.
    agreed: Option<Agreed>,
    /// Why the peer is refused. The peer gets time to read the answer: closing the connection with
    /// unread bytes would reset it, and the answer could be lost.
    refused: Option<Error>,
    /// Bytes that arrived after the refusal.
    drained: usize,
    limit: TimeLimit,
}

impl PendingHandshake {
    /// Begins as the responder. `timeout` limits the whole handshake.
    pub(crate) fn respond(
        stream: TcpStream,
        accepted: Arc<Accepted>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        Self::new(stream, Handshake::respond(accepted), Vec::new(), timeout)
    }

    /// Begins as the initiator. `timeout` limits the whole handshake.
    pub(crate) fn initiate(stream: TcpStream, key: &Key, timeout: Duration) -> Result<Self, Error> {
        let (handshake, first) = Handshake::initiate(key)?;
        Self::new(stream, handshake, first, timeout)
    }

    fn new(
        stream: TcpStream,
        handshake: Handshake,
        unsent: Vec<u8>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        stream.set_nonblocking(true).map_err(failed)?;
        Ok(Self {
            stream,
            handshake,
            unsent,
            agreed: None,
            refused: None,
            drained: 0,
            limit: TimeLimit::new(Some(timeout)),
        })
    }

    /// The time limit of the handshake.
    pub(crate) fn limit(&self) -> TimeLimit {
        self.limit
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The event of the socket that [`PendingHandshake::advance`] waits for.
    pub(crate) fn interest(&self) -> PollFlags {
        if self.unsent.is_empty() {
            PollFlags::IN
        } else {
            PollFlags::OUT
        }
    }

    /// Continues as far as the socket and the time limit allow. Returns `None` when it has to wait.
    pub(crate) fn advance(&mut self) -> Option<Result<Agreed, Error>> {
        let advanced = match self.try_advance() {
            Ok(None) => self.limit.check(Activity::Handshake).err().map(Err),
            Ok(Some(agreed)) => Some(Ok(agreed)),
            Err(error) => Some(Err(error)),
        };
        advanced.map(|result| result.map_err(|error| self.reason(error)))
    }

    /// Waits until the handshake has ended.
    pub(crate) fn finish(
        mut self,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<(TcpStream, Agreed), Error> {
        loop {
            if let Some(result) = self.advance() {
                return Ok((self.stream, result?));
            }
            let patience = CancellableLimit::new(self.limit, cancelled);
            if let Err(error) = patience.wait(&self.stream, self.interest(), Activity::Handshake) {
                return Err(self.reason(error));
            }
        }
    }

    /// Whether this end has used its code up.
    pub(crate) fn has_used_code(&self) -> bool {
        self.handshake.has_used_code()
    }

    /// The connection, after [`PendingHandshake::advance`] finished the handshake.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Returns why the handshake failed when it ends with `error`. For a refused peer, this is the
    /// first reason.
    ///
    /// A peer that stops after this end's message may have tested a guess of the code with that message.
    /// Another attempt with the code would let the peer test another guess.
    pub(crate) fn reason(&mut self, error: Error) -> Error {
        match self.refused.take().unwrap_or(error) {
            Error::HandshakeCut | Error::Timeout { .. } | Error::Io { .. }
                if self.handshake.has_shown_code() =>
            {
                Error::CodeUsed
            }
            error => error,
        }
    }

    fn try_advance(&mut self) -> Result<Option<Agreed>, Error> {
        while self.flush()? {
            if let Some(agreed) = self.agreed.take() {
                return Ok(Some(agreed));
            }
            let mut buffer = [0; BUFFER_BYTES];
            let Some(read) = self.read(&mut buffer)? else {
                break;
            };
            if self.refused.is_some() {
                self.drained += read;
                if self.drained > LINGER_BYTES {
                    return Err(Error::HandshakeCut);
                }
                continue;
            }
            match self.handshake.receive(&mut &buffer[..read]) {
                Ok(progress) => {
                    self.unsent = progress.send;
                    self.agreed = progress.agreed;
                }
                Err(Failed { error, answer }) if answer.is_empty() => return Err(error),
                Err(Failed { error, answer }) => {
                    self.unsent = answer;
                    self.refused = Some(error);
                    self.limit = self.limit.part(LINGER);
                }
            }
        }
        Ok(None)
    }

    /// Sends what is unsent. Returns whether everything was sent.
    fn flush(&mut self) -> Result<bool, Error> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        if self.refused.is_some() {
            // This fails only on a connection that has already ended.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        Ok(true)
    }

    /// Reads the bytes that the next step lacks. Returns `None` when no bytes are available.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let wants = match self.refused {
            Some(_) => buffer.len(),
            None => self.handshake.wants().min(buffer.len()),
        };
        loop {
            match self.stream.read(&mut buffer[..wants]) {
                Ok(0) => return Err(Error::HandshakeCut),
                Ok(read) => return Ok(Some(read)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

fn failed(source: std::io::Error) -> Error {
    match source.kind() {
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => {
            Error::HandshakeCut
        }
        _ => Error::Io {
            doing: Activity::Handshake,
            source,
        },
    }
}
