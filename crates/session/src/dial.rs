//! Reaching a peer.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::handshake::Agreed;
use crate::limit::Patience;
use crate::pending::Pending;
use crate::{Activity, Error, HostPort, Psk};

/// Pauses between attempts: the first and the longest. Each pause is twice the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest attempt: connecting and the handshake. After packet loss, a new connection succeeds
/// sooner than TCP's late retransmissions on the old one.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Connects and completes the handshake, like [`Channel::connect`](crate::Channel::connect).
pub(crate) fn dial(
    to: &HostPort,
    psk: &Psk,
    patience: Patience<'_>,
) -> Result<(TcpStream, Agreed), Error> {
    let addrs = find(to, patience)?;
    let mut pause = FIRST_PAUSE;
    loop {
        let failed = match try_all(to, &addrs, psk, patience) {
            Ok(reached) => return Ok(reached),
            Err(failed) => failed,
        };
        let left = patience.limit().left();
        if chance(&failed) == Chance::None || left.is_some_and(|left| left <= pause) {
            return Err(match (failed, patience.limit().total()) {
                // Report the total time, not the share of one attempt.
                (Error::Timeout { doing, .. }, Some(after)) => Error::Timeout { doing, after },
                (failed, _) => failed,
            });
        }
        patience.pause(pause)?;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Looks up a name in a separate thread, since the operating system's lookup cannot be interrupted.
/// If no thread waits for a lookup any more, the lookup thread ends by itself.
fn find(to: &HostPort, patience: Patience<'_>) -> Result<Vec<SocketAddr>, Error> {
    if !to.is_name() {
        return to.resolve();
    }
    let failed = |source| to.unresolved(source);
    let (found, lookup) = channel();
    let name = to.clone();
    thread::Builder::new()
        .name("lookup".into())
        .spawn(move || found.send(name.resolve()))
        .map_err(failed)?;
    loop {
        match patience.check(Activity::Lookup) {
            Err(Error::Timeout { .. }) => return Err(failed(ErrorKind::TimedOut.into())),
            checked => checked?,
        }
        match lookup.recv_timeout(patience.slice()) {
            Ok(addrs) => return addrs,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(std::io::Error::other("the lookup died")));
            }
        }
    }
}

/// Tries each address once. Returns the error with the best chance of a later attempt.
fn try_all(
    to: &HostPort,
    addrs: &[SocketAddr],
    psk: &Psk,
    patience: Patience<'_>,
) -> Result<(TcpStream, Agreed), Error> {
    let mut failed = to.unresolved(ErrorKind::NotFound.into());
    for (tried, &addr) in addrs.iter().enumerate() {
        let left = patience.limit().left().unwrap_or(ATTEMPT);
        let share = left / u32::try_from(addrs.len() - tried).unwrap_or(u32::MAX);
        match attempt(addr, psk, patience.part(share.min(ATTEMPT))) {
            Ok(reached) => return Ok(reached),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) if chance(&error) >= chance(&failed) => failed = error,
            Err(_) => {}
        }
    }
    Err(failed)
}

fn attempt(
    addr: SocketAddr,
    psk: &Psk,
    patience: Patience<'_>,
) -> Result<(TcpStream, Agreed), Error> {
    let stream = connect(addr, patience)?;
    let left = patience.limit().left().unwrap_or(ATTEMPT);
    Pending::initiate(stream, psk, left)?.finish(psk, patience.cancelled())
}

fn connect(addr: SocketAddr, patience: Patience<'_>) -> Result<TcpStream, Error> {
    let failed = |source| Error::Connect { addr, source };
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| failed(error.into()))?;
    match rustix::net::connect(&socket, &addr) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            match patience.wait(&socket, PollFlags::OUT, Activity::Connecting) {
                Err(Error::Timeout { .. }) => return Err(failed(ErrorKind::TimedOut.into())),
                waited => waited?,
            }
            let result = rustix::net::sockopt::socket_error(&socket).and_then(|result| result);
            result.map_err(|error| failed(error.into()))?;
        }
        Err(error) => return Err(failed(error.into())),
    }
    let stream = TcpStream::from(socket);
    // If no program listens on the port, the operating system can give the caller that same port as
    // its own. The caller then connects to itself.
    if stream.local_addr().map_err(failed)? == stream.peer_addr().map_err(failed)? {
        return Err(failed(ErrorKind::ConnectionRefused.into()));
    }
    Ok(stream)
}

/// Returns whether no other address and no other attempt can change the error.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::KeysDiffer
            | Error::NotFarwrite { .. }
            | Error::Version { .. }
            | Error::Status { .. }
            | Error::Noise(_)
            | Error::Cancelled
    )
}

/// The chance that a later attempt succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Chance {
    None,
    /// The host or the network is down, or this machine has no route to it, as to IPv6 addresses where
    /// there is no IPv6.
    Low,
    /// No program listens yet, packets were lost, or the connection was cut.
    Good,
}

fn chance(error: &Error) -> Chance {
    match error {
        Error::HandshakeCut | Error::Timeout { .. } => Chance::Good,
        Error::Connect { source, .. } | Error::Io { source, .. } => match source.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::TimedOut => Chance::Good,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                Chance::Low
            }
            _ => Chance::None,
        },
        _ => Chance::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_route_is_tried_again_and_hides_no_refusal() {
        let of = |kind: ErrorKind| {
            chance(&Error::Connect {
                addr: ([192, 0, 2, 7], 4792).into(),
                source: kind.into(),
            })
        };
        for kind in [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable] {
            assert!(of(kind) > of(ErrorKind::PermissionDenied));
            assert!(of(kind) < of(ErrorKind::ConnectionRefused));
        }
        assert_eq!(of(ErrorKind::PermissionDenied), Chance::None);
    }
}
