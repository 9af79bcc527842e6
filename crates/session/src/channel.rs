//! The channel: messages of any length, encrypted and in order, over one TCP connection (P7.4).

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::handshake::{self, Agreed, TAG_BYTES};
use crate::{Error, Psk, Reader, Writer, dial};

/// Most bytes of a record's ciphertext (Noise specification, section 3).
pub(crate) const MAX_RECORD_BYTES: usize = 65_535;
/// Most bytes of a record's plaintext.
pub(crate) const MAX_PLAIN_BYTES: usize = MAX_RECORD_BYTES - TAG_BYTES;
/// Bytes of a record's length, in front of it.
pub(crate) const LENGTH_BYTES: usize = 2;
/// Bytes of a message's length, in front of it in its first record.
pub(crate) const PREFIX_BYTES: usize = 4;

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
    peer: SocketAddr,
    local: SocketAddr,
}

impl Channel {
    /// Connects to a peer that calls [`Channel::accept`]; waits up to `timeout` for it to listen,
    /// and up to `timeout` again for its handshake.
    ///
    /// # Errors
    /// As [`dial`] and [`Channel::initiate`].
    pub fn connect(to: impl ToSocketAddrs, psk: &Psk, timeout: Duration) -> Result<Self, Error> {
        Self::initiate(dial(to, timeout)?, psk, timeout)
    }

    /// Begins the handshake on a connection; `timeout` is for all of it.
    ///
    /// # Errors
    /// [`Error::NotFarwrite`], [`Error::Version`], [`Error::KeysDiffer`] (both ends learn each),
    /// [`Error::HandshakeCut`], [`Error::Timeout`], [`Error::Io`].
    pub fn initiate(stream: TcpStream, psk: &Psk, timeout: Duration) -> Result<Self, Error> {
        let agreed = handshake::initiate(&stream, psk, timeout)?;
        Self::new(stream, agreed)
    }

    /// Answers the handshake on a connection; `timeout` is for all of it. When this returns a
    /// channel, the peer has proven that it holds the key, now.
    ///
    /// # Errors
    /// As [`Channel::initiate`].
    pub fn accept(stream: TcpStream, psk: &Psk, timeout: Duration) -> Result<Self, Error> {
        let agreed = handshake::respond(&stream, psk, timeout)?;
        Self::new(stream, agreed)
    }

    fn new(stream: TcpStream, agreed: Agreed) -> Result<Self, Error> {
        let io = |source| Error::Io {
            doing: "setting up the channel",
            source,
        };
        stream.set_read_timeout(None).map_err(io)?;
        stream.set_write_timeout(None).map_err(io)?;
        // Messages are short and awaited: none should wait for the next.
        stream.set_nodelay(true).map_err(io)?;
        let state = Arc::new(agreed.state);
        let (peer, local) = (
            stream.peer_addr().map_err(io)?,
            stream.local_addr().map_err(io)?,
        );
        Ok(Self {
            writer: Writer::new(stream.try_clone().map_err(io)?, state.clone(), agreed.sent),
            reader: Reader::new(stream, state, agreed.received),
            peer: canonical(peer),
            local: canonical(local),
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

    /// Limits how long [`Channel::recv`] waits, as [`Reader::set_timeout`].
    ///
    /// # Errors
    /// As [`Reader::set_timeout`].
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        self.reader.set_timeout(timeout)
    }

    /// The two halves, so that one thread can read while another writes. The connection ends when
    /// both are dropped, or by [`Writer::close`].
    #[must_use]
    pub fn split(self) -> (Reader, Writer) {
        (self.reader, self.writer)
    }

    /// Both halves, borrowed.
    pub fn halves(&mut self) -> (&mut Reader, &mut Writer) {
        (&mut self.reader, &mut self.writer)
    }
}

fn canonical(mut addr: SocketAddr) -> SocketAddr {
    let ip = addr.ip().to_canonical();
    if ip.is_ipv4() {
        addr.set_ip(ip);
    }
    addr
}
