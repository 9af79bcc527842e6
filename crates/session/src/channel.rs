//! The channel: messages of any length, encrypted and in order, over one TCP connection (P7.4).

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::closer::Socket;
use crate::dial::dial;
use crate::handshake::Agreed;
use crate::limit::{Limit, Patience};
use crate::pending::Pending;
use crate::records::{Incoming, Outgoing};
use crate::{Closer, Error, HostPort, Psk, Reader, Writer};

/// Something that goes through a channel as one message.
pub trait ChannelMessage: Serialize + DeserializeOwned {
    /// What errors call it.
    const NAME: &'static str;
    /// Most bytes of its serialised form. A longer one is refused before it is stored.
    const MAX_BYTES: usize;
}

/// An authenticated, encrypted connection to a peer that holds the same [`Psk`].
#[derive(Debug)]
pub struct Channel {
    reader: Reader,
    writer: Writer,
    closer: Closer,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Channel {
    /// Connects to a peer that calls [`Channel::accept`] and shakes hands with it.
    ///
    /// While nobody listens there, while nothing is heard, and when the connection is cut before the
    /// handshake is finished, it tries again after a pause, until `patience` is over. So either end
    /// may be started first, and a receiver that is flooded with connections is reached as soon as it
    /// has a place. `patience` is for everything together. Soon (50 ms) after `cancelled` says true
    /// the call ends; it is called often, from this thread.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`], [`Error::Status`] as soon as
    /// the peer answers so; [`Error::Resolve`]; [`Error::Connect`], [`Error::HandshakeCut`],
    /// [`Error::Timeout`], [`Error::Io`] from the last attempt; [`Error::Cancelled`].
    pub fn connect(
        to: &HostPort,
        psk: &Psk,
        patience: Duration,
        cancelled: impl Fn() -> bool,
    ) -> Result<Self, Error> {
        let limit = Limit::new(Some(patience));
        let (stream, agreed) = dial(to, psk, Patience::new(limit, &cancelled))?;
        Self::new(stream, agreed)
    }

    /// Begins the handshake on a connection; `timeout` is for all of it.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`] (both ends learn each),
    /// [`Error::Status`], [`Error::HandshakeCut`], [`Error::Timeout`], [`Error::Io`].
    pub fn initiate(stream: TcpStream, psk: &Psk, timeout: Duration) -> Result<Self, Error> {
        let pending = Pending::initiate(stream, psk, timeout)?;
        let (stream, agreed) = pending.finish(psk, &|| false)?;
        Self::new(stream, agreed)
    }

    /// Answers the handshake on a connection; `timeout` is for all of it. When this returns a
    /// channel, the peer has proven that it holds the key, now.
    ///
    /// # Errors
    /// As [`Channel::initiate`], and [`Error::Forged`] for a recorded handshake.
    pub fn accept(stream: TcpStream, psk: &Psk, timeout: Duration) -> Result<Self, Error> {
        let pending = Pending::respond(stream, timeout)?;
        let (stream, agreed) = pending.finish(psk, &|| false)?;
        Self::new(stream, agreed)
    }

    /// A channel on a connection, which does not block, whose handshake is finished.
    pub(crate) fn new(stream: TcpStream, agreed: Agreed) -> Result<Self, Error> {
        let io = |source| Error::Io {
            doing: "setting up the channel",
            source,
        };
        // Messages are short and awaited: none should wait for the next.
        stream.set_nodelay(true).map_err(io)?;
        let peer = canonical(stream.peer_addr().map_err(io)?);
        let local = canonical(stream.local_addr().map_err(io)?);
        let socket = Arc::new(Socket::new(stream));
        let state = Arc::new(agreed.state);
        let incoming = Incoming::new(state.clone(), agreed.received);
        Ok(Self {
            closer: Closer::new(&socket),
            writer: Writer::new(socket.clone(), Outgoing::new(state, agreed.sent)),
            reader: Reader::new(socket, incoming),
            peer,
            local,
        })
    }

    /// Address of the peer's end; an IPv4 address stays one where the socket is IPv6.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Address of this end; an IPv4 address stays one where the socket is IPv6.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Sends a message, as [`Writer::send`].
    ///
    /// # Errors
    /// As [`Writer::send`].
    pub fn send<T: ChannelMessage>(&mut self, message: &T) -> Result<(), Error> {
        self.writer.send(message)
    }

    /// Waits for a message, as [`Reader::recv`].
    ///
    /// # Errors
    /// As [`Reader::recv`].
    pub fn recv<T: ChannelMessage>(&mut self) -> Result<T, Error> {
        self.reader.recv()
    }

    /// Limits how long [`Channel::recv`] takes, as [`Reader::set_timeout`].
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) {
        self.reader.set_timeout(timeout);
    }

    /// The two halves, so that one thread can read while another writes. The connection ends when
    /// both are dropped, or by [`Closer::close`].
    #[must_use]
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }

    /// A handle that ends the channel from any thread, also after [`Channel::split`].
    #[must_use]
    pub fn closer(&self) -> Closer {
        self.closer.clone()
    }

    /// Both halves, borrowed.
    pub fn halves(&mut self) -> (&mut Reader, &mut Writer) {
        (&mut self.reader, &mut self.writer)
    }
}

/// With an IPv4 address as such, and not mapped into an IPv6 address.
pub(crate) fn canonical(mut addr: SocketAddr) -> SocketAddr {
    let ip = addr.ip().to_canonical();
    if ip.is_ipv4() {
        addr.set_ip(ip);
    }
    addr
}
