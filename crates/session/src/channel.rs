//! The channel: messages of any length, encrypted and in order, over one TCP connection (P7.4).

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

use crate::connect::connect;
use crate::handshake::Agreed;
use crate::happy_eyeballs::first_of;
use crate::pending_handshake::PendingHandshake;
use crate::records::{RecordOpener, RecordSealer};
use crate::socket::Socket;
use crate::time_limit::{CancellableLimit, TimeLimit};
use crate::{
    Accepted, Activity, ChannelMessage, CloseHandle, Error, HostPort, Key, Proof, Reader, Writer,
};

/// An authenticated, encrypted connection to a peer that has proven who it is ([`Key`], [`Accepted`]).
#[derive(Debug)]
pub struct Channel {
    reader: Reader,
    writer: Writer,
    close_handle: CloseHandle,
    peer: SocketAddr,
    local: SocketAddr,
    proof: Proof,
}

impl Channel {
    /// Connects to a peer that calls [`Channel::accept`] and shakes hands with it.
    ///
    /// The call tries again after a pause in three cases: no program listens there, the peer is
    /// silent, or the connection is cut before the handshake is finished. It stops when `patience`
    /// has elapsed. So the user may start either end first, and a sender reaches a receiver that is
    /// flooded with connections as soon as its table of handshakes has room. `patience` limits all
    /// attempts together. This thread calls `cancelled` often. The call ends at most about 50 ms
    /// after `cancelled` returns true.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`], [`Error::Status`] as soon
    /// as the peer sends such an answer; [`Error::Resolve`]; [`Error::Connect`],
    /// [`Error::HandshakeCut`], [`Error::Timeout`], [`Error::Io`] from the last attempt;
    /// [`Error::Cancelled`].
    pub fn connect(
        to: &HostPort,
        key: impl Into<Key>,
        patience: Duration,
        cancelled: impl Fn() -> bool,
    ) -> Result<Self, Error> {
        let limit = TimeLimit::new(Some(patience));
        let (stream, agreed) = connect(to, &key.into(), CancellableLimit::new(limit, &cancelled))?;
        Self::new(stream, agreed)
    }

    /// Connects to the first of some addresses that answers, and shakes hands with it once. `patience` limits
    /// both together.
    ///
    /// # Errors
    /// As [`Channel::connect`], without a name to look up.
    pub fn connect_first(
        addrs: &[SocketAddr],
        key: impl Into<Key>,
        patience: Duration,
        cancelled: impl Fn() -> bool,
    ) -> Result<Self, Error> {
        let limit = TimeLimit::new(Some(patience));
        let (_, stream) = first_of(addrs, CancellableLimit::new(limit, &cancelled))?;
        let pending = PendingHandshake::initiate(stream, &key.into(), patience)?;
        let (stream, agreed) = pending.finish(&cancelled)?;
        Self::new(stream, agreed)
    }

    /// Begins the handshake on a connection. `timeout` limits the whole handshake.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`] (both ends learn each),
    /// [`Error::Status`], [`Error::HandshakeCut`], [`Error::Timeout`], [`Error::Io`].
    pub fn initiate(
        stream: TcpStream,
        key: impl Into<Key>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let pending = PendingHandshake::initiate(stream, &key.into(), timeout)?;
        let (stream, agreed) = pending.finish(&|| false)?;
        Self::new(stream, agreed)
    }

    /// Responds to the handshake on a connection. `timeout` limits the whole handshake. When this
    /// returns a channel, the peer has proven that it holds the key now.
    ///
    /// # Errors
    /// As [`Channel::initiate`], and [`Error::Forged`] for a recorded handshake.
    pub fn accept(
        stream: TcpStream,
        accepted: impl Into<Accepted>,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let pending = PendingHandshake::respond(stream, Arc::new(accepted.into()), timeout)?;
        let (stream, agreed) = pending.finish(&|| false)?;
        Self::new(stream, agreed)
    }

    /// Makes a channel on a non-blocking connection whose handshake is finished.
    pub(crate) fn new(stream: TcpStream, agreed: Agreed) -> Result<Self, Error> {
        let io = |source| Error::Io {
            doing: Activity::SettingUp,
            source,
        };
        // Messages are short, and the peer waits for each: send each message at once.
        stream.set_nodelay(true).map_err(io)?;
        use_bbr(&stream);
        let peer = canonical(stream.peer_addr().map_err(io)?);
        let local = canonical(stream.local_addr().map_err(io)?);
        let socket = Arc::new(Socket::new(stream));
        let proof = agreed.peer;
        let state = Arc::new(agreed.state);
        let incoming = RecordOpener::new(state.clone(), agreed.received);
        Ok(Self {
            close_handle: CloseHandle::new(&socket),
            writer: Writer::new(socket.clone(), RecordSealer::new(state, agreed.sent)),
            reader: Reader::new(socket, incoming),
            peer,
            local,
            proof,
        })
    }

    /// Returns the address of the peer's end. An IPv4 address stays IPv4 even on an IPv6 socket.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns how the peer has proven who it is.
    #[must_use]
    pub fn proof(&self) -> Proof {
        self.proof
    }

    /// Returns the address of this end. An IPv4 address stays IPv4 even on an IPv6 socket.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends a message, like [`Writer::send`].
    ///
    /// # Errors
    /// As [`Writer::send`].
    pub fn send<T: ChannelMessage>(&mut self, message: &T) -> Result<(), Error> {
        self.writer.send(message)
    }

    /// Waits for a message, like [`Reader::recv`].
    ///
    /// # Errors
    /// As [`Reader::recv`].
    pub fn recv<T: ChannelMessage>(&mut self) -> Result<T, Error> {
        self.reader.recv()
    }

    /// Limits how long [`Channel::recv`] takes, like [`Reader::set_timeout`].
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.set_timeout(timeout);
    }

    /// Returns the two halves, so that one thread can read while another writes. The connection
    /// ends when both halves are dropped, or when [`CloseHandle::close`] is called.
    #[must_use]
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }

    /// Returns a handle that ends the channel from any thread, also after [`Channel::split`].
    #[must_use]
    pub fn close_handle(&self) -> CloseHandle {
        self.close_handle.clone()
    }

    /// Borrows both halves.
    pub fn halves(&mut self) -> (&mut Reader, &mut Writer) {
        (&mut self.reader, &mut self.writer)
    }
}

/// Uses BBR for what this end sends. The names and hashes of a large tree are megabytes, and CUBIC, the default of many
/// systems, needs seconds for them if random packets are lost. A system that lacks BBR, or lets only an administrator
/// choose it, keeps its default. So does one with a default that someone has chosen.
#[cfg(target_os = "linux")]
fn use_bbr(stream: &TcpStream) {
    let is_common = |name: &String| matches!(name.as_str(), "cubic" | "reno");
    if tcp_congestion(stream).is_ok_and(|name| is_common(&name)) {
        let _ = set_tcp_congestion(stream, "bbr");
    }
}

#[cfg(not(target_os = "linux"))]
fn use_bbr(_: &TcpStream) {}

/// Converts an IPv4 address that is mapped into IPv6 back to IPv4.
pub(crate) fn canonical(mut addr: SocketAddr) -> SocketAddr {
    let ip = addr.ip().to_canonical();
    if ip.is_ipv4() {
        addr.set_ip(ip);
    }
    addr
}
