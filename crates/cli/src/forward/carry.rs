//! Carries bytes between a TCP connection and a stream, in both directions, on one thread.
//!
//! Each direction has one buffer, and reads only when that is empty: who does not read holds up only the one who
//! writes. The end of a direction arrives as its end, and a reset as a reset.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use farwrite_connection::{Connection, Error as ConnectionError};
use farwrite_stream::{StreamControl, WriteHalf};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_keepalive, set_socket_linger};

const BUFFER_BYTES: usize = 64 << 10;
/// The most times that a direction reads and writes before the other one does.
const TURN: usize = 16;
/// How often a thread that has nothing to carry looks whether the connection is over.
const IDLE: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// A half of a stream that does not wait, as a socket that does not.
pub(super) struct AtOnce<T>(pub(super) T);

impl<T: Read> Read for AtOnce<T> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out).map_err(at_once)
    }
}

impl<T: Write> Write for AtOnce<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(at_once)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream whose time limit is zero says that it has taken too long.
fn at_once(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::TimedOut => ErrorKind::WouldBlock.into(),
        _ => error,
    }
}

/// One direction.
struct Direction {
    buffer: Vec<u8>,
    /// What the buffer holds.
    first: usize,
    end: usize,
    is_over: bool,
}

impl Direction {
    fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES],
            first: 0,
            end: 0,
            is_over: false,
        }
    }

    /// Waits for bytes to read.
    fn reads(&self) -> bool {
        !self.is_over && self.first == self.end
    }

    /// Waits for room to write.
    fn writes(&self) -> bool {
        !self.is_over && self.first < self.end
    }

    /// Carries what can be carried now. Returns whether this was the end of the direction.
    fn step(&mut self, from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
        for _ in 0..TURN {
            let moved = match (self.reads(), self.writes()) {
                (true, _) => from.read(&mut self.buffer).map(|count| {
                    (self.first, self.end) = (0, count);
                    self.is_over = count == 0;
                }),
                (_, true) => to.write(&self.buffer[self.first..self.end]).map(|count| {
                    self.first += count;
                }),
                _ => return Ok(false),
            };
            match moved {
                Ok(()) if self.is_over => return Ok(true),
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Carries until both directions have ended. If that fails, both ends get a reset. `tcp` is prepared, and calls of
/// `reader` do not wait.
///
/// # Errors
/// Why it failed: the TCP connection, the stream or the connection below it broke, or `reader` failed.
pub(super) fn carry(
    connection: &Connection,
    tcp: &TcpStream,
    control: &StreamControl,
    reader: &mut impl Read,
    writer: &mut WriteHalf,
) -> io::Result<()> {
    let mut out = Direction::new();
    writer.set_timeout(Some(Duration::ZERO));
    let carried = carry_both(connection, (tcp, control), reader, writer, &mut out);
    match &carried {
        Ok(()) => set_socket_linger(tcp, None)?,
        // What has come before an end is still delivered.
        Err(_) if out.is_over => {}
        Err(_) => control.reset(0),
    }
    carried
}

/// Prepares a TCP connection. If this program ends before both directions have ended, for whatever reason, the
/// system resets the connection: nobody takes a part for the whole.
pub(super) fn prepare(tcp: &TcpStream) -> io::Result<()> {
    // Zero makes closing a reset (socket(7), `SO_LINGER`).
    set_socket_linger(tcp, Some(Duration::ZERO))?;
    tcp.set_nonblocking(true)?;
    tcp.set_nodelay(true)?;
    // A peer that vanishes while nothing is said would be noticed by nobody.
    set_socket_keepalive(tcp, true)?;
    Ok(())
}

/// `out` is the direction from the TCP connection to the stream.
fn carry_both(
    connection: &Connection,
    (mut tcp, control): (&TcpStream, &StreamControl),
    reader: &mut impl Read,
    writer: &mut WriteHalf,
    out: &mut Direction,
) -> io::Result<()> {
    let readable = control.read_descriptor().map_err(io::Error::from)?;
    let writable = control.write_descriptor().map_err(io::Error::from)?;
    let (mut back, mut other) = (Direction::new(), tcp);
    while !out.is_over || !back.is_over {
        if back.step(reader, &mut tcp)? {
            tcp.shutdown(Shutdown::Write)?;
        }
        match out.step(&mut other, &mut AtOnce(&mut *writer)) {
            Ok(true) => writer.finish(),
            Ok(false) => {}
            // The other end takes no more. What comes from it may say why, and still counts.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => out.is_over = true,
            Err(error) => return Err(error),
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, out.reads());
        wanted.set(PollFlags::OUT, back.writes());
        let mut polled = Vec::with_capacity(3);
        if back.reads() {
            polled.push(PollFd::new(&readable, PollFlags::IN));
        }
        if out.writes() {
            polled.push(PollFd::new(&writable, PollFlags::IN));
        }
        // A socket that is polled without a flag still reports errors. After this end has sent its end, the socket also
        // reports the end of the peer, at each poll. So the loop leaves the socket out when both have ended.
        if !wanted.is_empty() || !back.is_over {
            polled.push(PollFd::new(tcp, wanted));
        }
        match poll(&mut polled, Some(&IDLE)) {
            Ok(0) => match connection.ended() {
                None => continue,
                Some(ended) => return Err(io::Error::other(ConnectionError::Over(ended))),
            },
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_broken = |polled: &PollFd<'_>| polled.revents().contains(PollFlags::ERR);
        if polled.iter().any(is_broken) {
            return Err(tcp
                .take_error()?
                .unwrap_or_else(|| ErrorKind::ConnectionReset.into()));
        }
    }
    Ok(())
}
