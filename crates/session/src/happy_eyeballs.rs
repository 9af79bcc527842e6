//! Connects to the first of several addresses that answers (Happy Eyeballs, RFC 8305).
//!
//! The operating system looks up both address families in one call, so the answer of one family cannot
//! arrive first (RFC 8305 section 3). The order of addresses is that of the operating system (RFC 6724),
//! with alternating families.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::connect::likelier;
use crate::time_limit::{CancellableLimit, poll};
use crate::{Activity, Error};

/// The time after which the next address is tried too, if no address has answered (RFC 8305 section 5,
/// "Connection Attempt Delay").
const STAGGER: Duration = Duration::from_millis(250);

/// Returns the addresses in the order in which they are tried: the families alternate, and begin with the
/// family of the first address (RFC 8305 section 4).
#[must_use]
pub fn alternate(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    let starts_with_v6 = addrs.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (Vec<_>, Vec<_>) = addrs
        .iter()
        .copied()
        .partition(|addr: &SocketAddr| addr.is_ipv6() == starts_with_v6);
    let mut order = Vec::with_capacity(addrs.len());
    first.reverse();
    second.reverse();
    while order.len() < addrs.len() {
        order.extend(first.pop());
        order.extend(second.pop());
    }
    order
}

/// Connects to each address, one [`STAGGER`] after the other or as soon as the one before has failed.
/// Returns the first connection.
///
/// # Errors
/// The error of the address that a later attempt reaches most likely: [`Error::Connect`],
/// [`Error::NoRoute`]; [`Error::Cancelled`].
pub(crate) fn first_of(
    addrs: &[SocketAddr],
    patience: CancellableLimit<'_>,
) -> Result<(SocketAddr, TcpStream), Error> {
    let mut race = ConnectionRace::default();
    let mut waiting = addrs.iter();
    let mut next_at = Instant::now();
    loop {
        match patience.check(Activity::Connecting) {
            Err(Error::Timeout { .. }) => return Err(race.timed_out()),
            checked => checked?,
        }
        let now = Instant::now();
        if race.open.is_empty() || now >= next_at {
            match waiting.next() {
                Some(&addr) => {
                    if let Some(stream) = race.start(addr) {
                        return Ok((addr, stream));
                    }
                    next_at = now + STAGGER;
                    continue;
                }
                None if race.open.is_empty() => return Err(race.over()),
                None => {}
            }
        }
        let stagger = next_at.saturating_duration_since(now);
        let has_next = waiting.len() > 0;
        let wait = patience.slice();
        let wait = if has_next { wait.min(stagger) } else { wait };
        let open = race.open.len();
        if let Some(connected) = race.wait(wait)? {
            return Ok(connected);
        }
        if race.open.len() < open {
            next_at = Instant::now();
        }
    }
}

/// The attempts so far.
#[derive(Default)]
struct ConnectionRace {
    /// Attempts that have neither connected nor failed.
    open: Vec<(SocketAddr, OwnedFd)>,
    failed: Option<Error>,
}

impl ConnectionRace {
    /// Starts to connect to an address. Returns the connection if it exists at once.
    fn start(&mut self, addr: SocketAddr) -> Option<TcpStream> {
        match begin(addr) {
            Ok(Attempt::Connected(stream)) => return Some(stream),
            Ok(Attempt::Connecting(socket)) => self.open.push((addr, socket)),
            Err(error) => self.note(error),
        }
        None
    }

    fn note(&mut self, error: Error) {
        self.failed = Some(match self.failed.take() {
            Some(before) => likelier(before, error),
            None => error,
        });
    }

    /// Waits for the open attempts. Returns the first connection.
    fn wait(&mut self, time: Duration) -> Result<Option<(SocketAddr, TcpStream)>, Error> {
        let mut polled: Vec<_> = self
            .open
            .iter()
            .map(|(_, socket)| PollFd::new(socket, PollFlags::OUT))
            .collect();
        poll(&mut polled, Some(time)).map_err(|source| Error::Io {
            doing: Activity::Connecting,
            source,
        })?;
        let ready: Vec<_> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        for (addr, socket) in std::mem::take(&mut self.open) {
            if !ready.next().unwrap_or(false) {
                self.open.push((addr, socket));
                continue;
            }
            match finish(addr, socket) {
                Ok(stream) => return Ok(Some((addr, stream))),
                Err(error) => self.note(error),
            }
        }
        Ok(None)
    }

    /// No address has answered in time.
    fn timed_out(mut self) -> Error {
        if let Some(&(addr, _)) = self.open.first() {
            let source = ErrorKind::TimedOut.into();
            self.note(Error::Connect { addr, source });
        }
        self.over()
    }

    fn over(self) -> Error {
        self.failed.unwrap_or(Error::Timeout {
            doing: Activity::Connecting,
            after: Duration::ZERO,
        })
    }
}

/// An attempt that has begun.
enum Attempt {
    Connected(TcpStream),
    Connecting(OwnedFd),
}

fn begin(addr: SocketAddr) -> Result<Attempt, Error> {
    let failed = |source| Error::Connect { addr, source };
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| failed(error.into()))?;
    match rustix::net::connect(&socket, &addr) {
        Ok(()) => finish(addr, socket).map(Attempt::Connected),
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Attempt::Connecting(socket)),
        // The routing table of this machine says so. A router reports this later.
        Err(Errno::NETUNREACH) => Err(Error::NoRoute { addr }),
        Err(error) => Err(failed(error.into())),
    }
}

fn finish(addr: SocketAddr, socket: OwnedFd) -> Result<TcpStream, Error> {
    let failed = |source| Error::Connect { addr, source };
    let result = rustix::net::sockopt::socket_error(&socket).and_then(|result| result);
    result.map_err(|error| failed(error.into()))?;
    let stream = TcpStream::from(socket);
    // If no program listens on the port, the operating system can give the caller that same port as
    // its own. The caller then connects to itself.
    if stream.local_addr().map_err(failed)? == stream.peer_addr().map_err(failed)? {
        return Err(failed(ErrorKind::ConnectionRefused.into()));
    }
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate_from_the_first_on() {
        let addrs = |texts: &[&str]| -> Vec<SocketAddr> {
            let parse = |text: &&str| format!("{text}:1").parse().expect("an address");
            texts.iter().map(parse).collect()
        };
        for (found, order) in [
            (
                &["[::1]", "[::2]", "1.1.1.1"][..],
                &["[::1]", "1.1.1.1", "[::2]"][..],
            ),
            (
                &["1.1.1.1", "[::1]", "[::2]"],
                &["1.1.1.1", "[::1]", "[::2]"],
            ),
            (&["1.1.1.1", "2.2.2.2"], &["1.1.1.1", "2.2.2.2"]),
            (&[], &[]),
        ] {
            assert_eq!(alternate(&addrs(found)), addrs(order), "{found:?}");
        }
    }
}
