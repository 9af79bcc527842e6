//! Reaching a peer.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::handshake::Agreed;
use crate::happy_eyeballs::{alternate, first_of};
use crate::pending_handshake::PendingHandshake;
use crate::time_limit::CancellableLimit;
use crate::{Activity, Error, HostPort, Key};

/// Pauses between attempts: the first and the longest. Each pause is twice the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest attempt: connecting and the handshake. After packet loss, a new connection succeeds
/// sooner than TCP's late retransmissions on the old one.
const ATTEMPT: Duration = Duration::from_secs(10);

/// Looks up the addresses of a host.
type Resolver = Arc<dyn Fn(&HostPort) -> Result<Vec<SocketAddr>, Error> + Send + Sync>;

/// Connects and completes the handshake, like [`Channel::connect`](crate::Channel::connect).
pub(crate) fn connect(
    to: &HostPort,
    key: &Key,
    patience: CancellableLimit<'_>,
) -> Result<(TcpStream, Agreed), Error> {
    let resolve: Resolver = Arc::new(HostPort::resolve);
    connect_by(&resolve, to, key, patience)
}

/// Like [`connect`], with another resolver.
fn connect_by(
    resolve: &Resolver,
    to: &HostPort,
    key: &Key,
    patience: CancellableLimit<'_>,
) -> Result<(TcpStream, Agreed), Error> {
    let mut pause = FIRST_PAUSE;
    let mut addrs = Vec::new();
    loop {
        let found = match addrs.is_empty() {
            true => find(resolve, to, patience).map(|found| addrs = alternate(&found)),
            false => Ok(()),
        };
        let failed = match found.and_then(|()| try_all(to, &addrs, key, patience)) {
            Ok(reached) => return Ok(reached),
            Err(failed) => failed,
        };
        let left = patience.limit().left();
        if retry_chance(&failed) == RetryChance::None || left.is_some_and(|left| left <= pause) {
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
fn find(
    resolve: &Resolver,
    to: &HostPort,
    patience: CancellableLimit<'_>,
) -> Result<Vec<SocketAddr>, Error> {
    if !to.is_name() {
        return to.resolve();
    }
    let failed = |source| to.unresolved(source);
    let (found, lookup) = channel();
    let (name, resolve) = (to.clone(), Arc::clone(resolve));
    thread::Builder::new()
        .name("lookup".into())
        .spawn(move || found.send(resolve(&name)))
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

/// Tries each address at most once. Returns the error with the best chance of a later attempt.
fn try_all(
    to: &HostPort,
    addrs: &[SocketAddr],
    key: &Key,
    patience: CancellableLimit<'_>,
) -> Result<(TcpStream, Agreed), Error> {
    let mut failed = to.unresolved(ErrorKind::NotFound.into());
    let mut addrs = addrs.to_vec();
    while !addrs.is_empty() {
        let (addr, stream) = match first_of(&addrs, patience.part(ATTEMPT)) {
            Ok(connected) => connected,
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => return Err(likelier(failed, error)),
        };
        // A peer that is silent after it has accepted the connection leaves time for the others.
        let left = patience.limit().left().unwrap_or(ATTEMPT);
        let share = left / u32::try_from(addrs.len()).unwrap_or(u32::MAX);
        let pending = PendingHandshake::initiate(stream, key, share.min(ATTEMPT))?;
        match pending.finish(patience.cancelled()) {
            Ok(reached) => return Ok(reached),
            Err(error) if is_final(&error) => return Err(error),
            Err(error) => failed = likelier(failed, error),
        }
        addrs.retain(|other| *other != addr);
    }
    Err(failed)
}

/// The error after which a later attempt succeeds more likely; the second one if both are equal.
pub(crate) fn likelier(first: Error, second: Error) -> Error {
    if retry_chance(&first) > retry_chance(&second) {
        first
    } else {
        second
    }
}

/// Returns whether no other address and no other attempt can change the error.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::KeysDiffer
            | Error::UnknownThere
            | Error::NotThisWay
            | Error::WrongCode
            | Error::CodeUsed
            | Error::BadExchange
            | Error::NotFarwrite { .. }
            | Error::Version { .. }
            | Error::Status { .. }
            | Error::Noise(_)
            | Error::Cancelled
    )
}

/// The chance that a later attempt succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RetryChance {
    None,
    /// The host or the network is down, as a router or a neighbour reports.
    Low,
    /// No program listens yet, packets were lost, or the connection was cut.
    Good,
}

fn retry_chance(error: &Error) -> RetryChance {
    match error {
        Error::HandshakeCut | Error::Timeout { .. } => RetryChance::Good,
        // A name server that does not answer, as when a network is coming up.
        Error::Resolve {
            is_temporary: true, ..
        } => RetryChance::Good,
        Error::Connect { source, .. } | Error::Io { source, .. } => match source.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::TimedOut => RetryChance::Good,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                RetryChance::Low
            }
            _ => RetryChance::None,
        },
        _ => RetryChance::None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::time_limit::TimeLimit;
    use crate::{Channel, Psk};

    const PATIENT: Duration = Duration::from_secs(60);

    /// Connects to a name with these addresses. `answer` gets the number of the lookup.
    fn dial_name(
        psk: &Psk,
        answer: impl Fn(u32) -> Result<Vec<SocketAddr>, Error> + Send + Sync + 'static,
    ) -> Result<SocketAddr, Error> {
        let lookups = AtomicU32::new(0);
        let resolve: Resolver =
            Arc::new(move |_: &HostPort| answer(lookups.fetch_add(1, Ordering::Relaxed)));
        let to = "far.invalid:4792".parse().expect("a name");
        let patience = CancellableLimit::new(TimeLimit::new(Some(PATIENT)), &|| false);
        let (stream, _) = connect_by(&resolve, &to, &psk.into(), patience)?;
        Ok(stream.peer_addr().expect("connected"))
    }

    fn listen(ip: &str) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((ip, 0)).expect("loopback");
        let addr = listener.local_addr().expect("an address");
        (listener, addr)
    }

    /// Runs `connect` while the listener accepts one peer with the key.
    fn with_peer<T>(listener: &TcpListener, psk: &Psk, connect: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                let stream = listener.accept().expect("accept").0;
                Channel::accept(stream, psk, PATIENT).expect("handshake");
            });
            connect()
        })
    }

    fn unresolved(is_temporary: bool) -> Error {
        Error::Resolve {
            host: "far.invalid:4792".into(),
            is_temporary,
            source: ErrorKind::Other.into(),
        }
    }

    #[test]
    fn a_temporary_failure_of_the_lookup_is_tried_again() {
        let psk = Psk::generate().expect("key");
        let (listener, addr) = listen("127.0.0.1");
        let answer = move |lookup| match lookup {
            0 | 1 => Err(unresolved(true)),
            _ => Ok(vec![addr]),
        };
        let reached = with_peer(&listener, &psk, || dial_name(&psk, answer));
        assert_eq!(reached.expect("the third lookup"), addr);
    }

    #[test]
    fn an_unknown_name_is_final() {
        let psk = Psk::generate().expect("key");
        let start = Instant::now();
        let error = dial_name(&psk, |_| Err(unresolved(false))).expect_err("unknown");
        assert!(matches!(error, Error::Resolve { .. }), "{error}");
        assert!(start.elapsed() < PATIENT / 2, "it was tried again");
    }

    /// Returns an address that answers nothing: its queue of connections is full.
    fn dead() -> (Vec<TcpStream>, rustix::fd::OwnedFd, SocketAddr) {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let full = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&full, &any).expect("loopback");
        listen(&full, 0).expect("a listener");
        let addr: SocketAddr = getsockname(&full)
            .expect("an address")
            .try_into()
            .expect("IPv4");
        let fill = || TcpStream::connect_timeout(&addr, Duration::from_millis(200)).ok();
        (std::iter::from_fn(fill).collect(), full, addr)
    }

    #[test]
    fn an_address_that_does_not_answer_costs_a_quarter_of_a_second() {
        let psk = Psk::generate().expect("key");
        let (listener, alive) = listen("127.0.0.1");
        let (_filling, _full, dead) = dead();
        let start = Instant::now();
        let reached = with_peer(&listener, &psk, || {
            dial_name(&psk, move |_| Ok(vec![dead, alive]))
        });
        assert_eq!(reached.expect("the second address"), alive);
        // Without a race, the first address takes a whole attempt.
        assert!(start.elapsed() < ATTEMPT / 2, "{:?}", start.elapsed());
    }

    /// A peer that accepts connections and is silent takes its share of the time, and no more.
    #[test]
    fn an_address_without_farwrite_leaves_the_others() {
        let psk = Psk::generate().expect("key");
        let (cutting, other) = listen("127.0.0.1");
        let (listener, alive) = listen("127.0.0.1");
        thread::scope(|scope| {
            scope.spawn(|| drop(cutting.accept()));
            let reached = with_peer(&listener, &psk, || {
                dial_name(&psk, move |_| Ok(vec![other, alive]))
            });
            assert_eq!(reached.expect("the second address"), alive);
        });
    }

    #[test]
    fn errors_are_ordered_by_the_chance_of_another_attempt() {
        let addr = ([192, 0, 2, 7], 4792).into();
        let of = |kind: ErrorKind| {
            retry_chance(&Error::Connect {
                addr,
                source: kind.into(),
            })
        };
        assert_eq!(retry_chance(&Error::NoRoute { addr }), RetryChance::None);
        assert_eq!(of(ErrorKind::PermissionDenied), RetryChance::None);
        for kind in [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable] {
            assert!(of(kind) > RetryChance::None);
            assert!(of(kind) < of(ErrorKind::ConnectionRefused));
        }
    }
}
