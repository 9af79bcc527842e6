//! Waiting for a peer that holds the key.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Channel, Error, Psk};

/// Handshakes at a time. A stranger can hold each for the handshake's time limit, so a peer waits
/// at worst that long; more would let strangers take more of this machine.
const MAX_HANDSHAKES: usize = 32;
/// Pause between two looks for a new connection.
const TICK: Duration = Duration::from_millis(5);

/// A TCP port that hands out channels to peers that hold the key. Connections of anyone else cost
/// a thread each until their handshake fails or its time is over; they do not block the peer's.
#[derive(Debug)]
pub struct Listener {
    tcp: TcpListener,
    local: SocketAddr,
}

type Outcome = (SocketAddr, Result<Channel, Error>);

impl Listener {
    /// Listens on an address; port 0 picks a free one. `[::]` takes IPv4 peers as well where the
    /// operating system allows.
    ///
    /// # Errors
    /// [`Error::Resolve`], [`Error::Listen`].
    pub fn bind(addr: impl ToSocketAddrs) -> Result<Self, Error> {
        let addrs: Vec<_> = addr.to_socket_addrs().map_err(Error::Resolve)?.collect();
        let first = addrs.first().copied().ok_or_else(|| {
            Error::Resolve(std::io::Error::new(
                ErrorKind::NotFound,
                "the name has no addresses",
            ))
        })?;
        let listen = |source| Error::Listen {
            addr: first,
            source,
        };
        let tcp = TcpListener::bind(&addrs[..]).map_err(listen)?;
        tcp.set_nonblocking(true).map_err(listen)?;
        let local = tcp.local_addr().map_err(listen)?;
        Ok(Self { tcp, local })
    }

    /// The address it listens on.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Waits for a peer that completes the handshake within `timeout` of connecting. Everyone else
    /// is told to `refused`, with address and reason. Waits for `patience`, or forever if `None`.
    ///
    /// # Errors
    /// [`Error::Timeout`] when `patience` is over, [`Error::Io`] when the port fails.
    pub fn accept(
        &self,
        psk: &Psk,
        timeout: Duration,
        patience: Option<Duration>,
        mut refused: impl FnMut(SocketAddr, &Error),
    ) -> Result<Channel, Error> {
        let start = Instant::now();
        let (outcomes, incoming): (Sender<Outcome>, Receiver<Outcome>) = channel();
        let mut under_way = 0;
        loop {
            while let Some((stream, peer)) = self.next()? {
                if under_way == MAX_HANDSHAKES {
                    refused(peer, &Error::Crowded(MAX_HANDSHAKES));
                    continue;
                }
                under_way += 1;
                shake_hands(stream, peer, psk.clone(), timeout, outcomes.clone());
            }
            match incoming.recv_timeout(TICK) {
                Ok((_, Ok(channel))) => return Ok(channel),
                Ok((peer, Err(error))) => {
                    under_way -= 1;
                    refused(peer, &error);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if let Some(after) = patience.filter(|patience| start.elapsed() >= *patience) {
                return Err(Error::Timeout {
                    doing: "waiting for it",
                    after,
                });
            }
        }
    }

    fn next(&self) -> Result<Option<(TcpStream, SocketAddr)>, Error> {
        match self.tcp.accept() {
            Ok(connection) => Ok(Some(connection)),
            Err(source) => match source.kind() {
                // The last three: the connection ended while it was waiting.
                ErrorKind::WouldBlock
                | ErrorKind::Interrupted
                | ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset => Ok(None),
                _ => Err(Error::Io {
                    doing: "accepting connections",
                    source,
                }),
            },
        }
    }
}

fn shake_hands(
    stream: TcpStream,
    peer: SocketAddr,
    psk: Psk,
    timeout: Duration,
    outcomes: Sender<Outcome>,
) {
    thread::spawn(move || {
        let channel = stream
            .set_nonblocking(false)
            .map_err(|source| Error::Io {
                doing: "accepting a connection",
                source,
            })
            .and_then(|()| Channel::accept(stream, &psk, timeout));
        // Nobody waits any more when another peer was first: the channel is dropped, and so closed.
        let _ = outcomes.send((peer, channel));
    });
}
