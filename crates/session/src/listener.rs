//! Waits for a peer that this end accepts.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::channel::canonical;
use crate::handshake_table::HandshakeTable;
use crate::pending_handshake::PendingHandshake;
use crate::time_limit::{TimeLimit, poll};
use crate::{Accepted, AcceptedKeys, Activity, Channel, Error, shown};

/// The maximum number of connections that are accepted before the current handshakes continue.
const ACCEPTS_A_TURN: usize = 16;
/// How long accepting pauses after the operating system could not provide a connection.
const PAUSE: Duration = Duration::from_millis(50);
/// The time between two reports of the same failure to accept connections.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// A TCP port that returns channels to peers that it accepts. All handshakes share one thread.
/// Their number is limited, in total and for each source (an IPv4 address, or an IPv6 network of 64
/// bits): a newer connection replaces the oldest.
pub struct Listener {
    tcp: TcpListener,
    local: SocketAddr,
    handshakes: HandshakeTable<HandshakingPeer>,
    /// No connection is accepted before this time.
    paused_until: Option<Instant>,
    /// The last failure that was reported, and when.
    reported: Option<(Option<i32>, Instant)>,
}

/// A peer whose handshake is in progress.
struct HandshakingPeer {
    addr: SocketAddr,
    pending: PendingHandshake,
}

/// What [`Listener::accept`] reports while it continues to wait.
#[derive(Debug)]
pub enum Refusal {
    /// A connection was closed without becoming a channel.
    Peer {
        /// The peer's address.
        addr: SocketAddr,
        /// The cause.
        error: Error,
    },
    /// The operating system could not provide a connection. This is temporary, or an administrator
    /// can correct it: too many files are open, or a firewall forbids the connection.
    Accept(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer { addr, error } => write!(f, "refused {}: {error}", shown(addr)),
            Self::Accept(source) => {
                write!(f, "cannot take a connection now, and tries again: {source}")
            }
        }
    }
}

impl Listener {
    /// Listens on an address. Port 0 selects a free port. `[::]` also accepts IPv4 peers if the
    /// operating system allows that.
    ///
    /// # Errors
    /// [`Error::Listen`].
    pub fn bind(addr: impl Into<SocketAddr>) -> Result<Self, Error> {
        let addr = addr.into();
        let listen = |source| Error::Listen { addr, source };
        let tcp = TcpListener::bind(addr).map_err(listen)?;
        tcp.set_nonblocking(true).map_err(listen)?;
        let local = tcp.local_addr().map_err(listen)?;
        Ok(Self {
            tcp,
            local,
            handshakes: HandshakeTable::default(),
            paused_until: None,
            reported: None,
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a peer that completes the handshake within `timeout` of connecting. Every other
    /// event is passed to `refused`. Waits for `patience`, or forever if `None`. Handshakes that
    /// are in progress when this returns continue with the next call.
    ///
    /// # Errors
    /// [`Error::Timeout`] when `patience` has elapsed, [`Error::CodeUsed`] when a peer has used the code up and
    /// has no channel, [`Error::Io`] when the port fails
    /// permanently.
    pub fn accept(
        &mut self,
        accepted: impl Into<AcceptedKeys>,
        timeout: Duration,
        patience: Option<Duration>,
        mut refused: impl FnMut(&Refusal),
    ) -> Result<Channel, Error> {
        let accepted = accepted.into();
        let limit = TimeLimit::new(patience);
        loop {
            if let Some(channel) = self.advance(&mut refused) {
                return channel;
            }
            limit.check(Activity::Listening)?;
            match self.wait(limit) {
                Ok(()) => self.admit(&accepted, timeout, &mut refused)?,
                Err(source) if AcceptFailure::of(&source) == Some(AcceptFailure::Exhausted) => {
                    self.make_room(source, &mut refused)?;
                    std::thread::sleep(PAUSE);
                }
                Err(source) => return Err(broken(source)),
            }
        }
    }

    /// Continues all handshakes; returns the channel of the first that is finished.
    fn advance(&mut self, refused: &mut impl FnMut(&Refusal)) -> Option<Result<Channel, Error>> {
        let mut at = 0;
        while let Some(peer) = self.handshakes.get_mut(at) {
            let Some(result) = peer.pending.advance() else {
                at += 1;
                continue;
            };
            let HandshakingPeer { addr, pending } = self.handshakes.remove(at)?;
            let has_used_code = pending.has_used_code();
            match result.and_then(|agreed| Channel::new(pending.into_stream(), agreed)) {
                Ok(channel) => return Some(Ok(channel)),
                Err(error) => refused(&Refusal::Peer { addr, error }),
            }
            if has_used_code {
                return Some(Err(Error::CodeUsed));
            }
        }
        None
    }

    /// Waits until a connection or a handshake can continue.
    fn wait(&self, limit: TimeLimit) -> io::Result<()> {
        let now = Instant::now();
        let pause = self
            .paused_until
            .map(|until| until.saturating_duration_since(now));
        let pause = pause.filter(|pause| !pause.is_zero());
        let mut sockets = Vec::new();
        let mut time = [limit.left(), pause].into_iter().flatten().min();
        for HandshakingPeer { pending, .. } in self.handshakes.iter() {
            sockets.push(PollFd::new(pending.stream(), pending.interest()));
            time = time.into_iter().chain(pending.limit().left()).min();
        }
        if pause.is_none() {
            sockets.push(PollFd::new(&self.tcp, PollFlags::IN));
        }
        poll(&mut sockets, time).map(drop)
    }

    /// Accepts a few of the waiting connections.
    fn admit(
        &mut self,
        accepted: &AcceptedKeys,
        timeout: Duration,
        refused: &mut impl FnMut(&Refusal),
    ) -> Result<(), Error> {
        if self
            .paused_until
            .is_some_and(|until| Instant::now() < until)
        {
            return Ok(());
        }
        self.paused_until = None;
        for _ in 0..ACCEPTS_A_TURN {
            match self.tcp.accept() {
                Ok((stream, addr)) => {
                    let accepted = accepted.get();
                    self.begin_handshake((stream, canonical(addr)), accepted, timeout, refused)?;
                }
                Err(source) => match AcceptFailure::of(&source) {
                    Some(AcceptFailure::Nobody) => break,
                    Some(AcceptFailure::Gone) => self.report(source, refused),
                    Some(AcceptFailure::Exhausted) => {
                        self.make_room(source, refused)?;
                        break;
                    }
                    Some(AcceptFailure::Forbidden) => {
                        self.pause(source, refused);
                        break;
                    }
                    None => return Err(broken(source)),
                },
            }
        }
        Ok(())
    }

    /// Begins the handshake on a new connection.
    fn begin_handshake(
        &mut self,
        (stream, addr): (TcpStream, SocketAddr),
        accepted: Arc<Accepted>,
        timeout: Duration,
        refused: &mut impl FnMut(&Refusal),
    ) -> Result<(), Error> {
        match PendingHandshake::respond(stream, accepted, timeout) {
            Ok(pending) => {
                let newcomer = HandshakingPeer { addr, pending };
                match self.handshakes.admit(addr.ip(), newcomer) {
                    Some(oldest) => give_up(oldest, refused),
                    None => Ok(()),
                }
            }
            Err(error) => {
                refused(&Refusal::Peer { addr, error });
                Ok(())
            }
        }
    }

    /// Releases the descriptor and the memory of the oldest handshake, and pauses.
    fn make_room(
        &mut self,
        source: io::Error,
        refused: &mut impl FnMut(&Refusal),
    ) -> Result<(), Error> {
        self.pause(source, refused);
        match self.handshakes.evict() {
            Some(oldest) => give_up(oldest, refused),
            None => Ok(()),
        }
    }

    fn pause(&mut self, source: io::Error, refused: &mut impl FnMut(&Refusal)) {
        self.report(source, refused);
        self.paused_until = Some(Instant::now() + PAUSE);
    }

    /// Reports a failure to accept connections, unless it was reported recently.
    fn report(&mut self, source: io::Error, refused: &mut impl FnMut(&Refusal)) {
        let (kind, now) = (source.raw_os_error(), Instant::now());
        let is_known = self
            .reported
            .is_some_and(|(last, at)| last == kind && now - at < REPORT_EVERY);
        if !is_known {
            self.reported = Some((kind, now));
            refused(&Refusal::Accept(source));
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl HandshakingPeer {
    /// Closes the connection to make room for a newer one.
    fn crowded_out(mut self) -> Refusal {
        let after = self.pending.limit().elapsed();
        Refusal::Peer {
            addr: self.addr,
            error: self.pending.reason(Error::Crowded { after }),
        }
    }
}

/// Closes a connection to make room for a newer one. The listener ends if the closed connection has used up
/// the code.
fn give_up(oldest: HandshakingPeer, refused: &mut impl FnMut(&Refusal)) -> Result<(), Error> {
    let has_used_code = oldest.pending.has_used_code();
    refused(&oldest.crowded_out());
    match has_used_code {
        true => Err(Error::CodeUsed),
        false => Ok(()),
    }
}

fn broken(source: io::Error) -> Error {
    Error::Io {
        doing: Activity::Accepting,
        source,
    }
}

/// Why `accept` returned no connection, if the listener can continue (see accept(2)).
#[derive(Debug, PartialEq, Eq)]
enum AcceptFailure {
    /// No connection waits.
    Nobody,
    /// The connection ended, or its network failed, while it waited. The next one may be intact.
    Gone,
    /// This machine lacks descriptors or memory; the connections keep waiting.
    Exhausted,
    /// A firewall forbids it; the connections keep waiting.
    Forbidden,
}

impl AcceptFailure {
    /// Returns `None` for a permanent error.
    fn of(error: &io::Error) -> Option<Self> {
        Some(match Errno::from_io_error(error)? {
            Errno::AGAIN | Errno::INTR => Self::Nobody,
            Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::TIMEDOUT
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::NONET
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP => Self::Gone,
            Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSR => {
                Self::Exhausted
            }
            Errno::PERM => Self::Forbidden,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_accept_that_pass() {
        for (errno, failure) in [
            (Errno::AGAIN, AcceptFailure::Nobody),
            (Errno::INTR, AcceptFailure::Nobody),
            (Errno::CONNABORTED, AcceptFailure::Gone),
            (Errno::PROTO, AcceptFailure::Gone),
            (Errno::NETDOWN, AcceptFailure::Gone),
            (Errno::NETUNREACH, AcceptFailure::Gone),
            (Errno::HOSTDOWN, AcceptFailure::Gone),
            (Errno::HOSTUNREACH, AcceptFailure::Gone),
            (Errno::NONET, AcceptFailure::Gone),
            (Errno::NOPROTOOPT, AcceptFailure::Gone),
            (Errno::OPNOTSUPP, AcceptFailure::Gone),
            (Errno::MFILE, AcceptFailure::Exhausted),
            (Errno::NFILE, AcceptFailure::Exhausted),
            (Errno::NOBUFS, AcceptFailure::Exhausted),
            (Errno::NOMEM, AcceptFailure::Exhausted),
            (Errno::PERM, AcceptFailure::Forbidden),
        ] {
            assert_eq!(AcceptFailure::of(&errno.into()), Some(failure), "{errno:?}");
        }
        for errno in [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::FAULT] {
            assert_eq!(AcceptFailure::of(&errno.into()), None, "{errno:?}");
        }
    }
}
