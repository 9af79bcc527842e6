//! An admitted peer that has sent its hello.

use std::net::SocketAddr;

use farwrite_connection::Connection;
use farwrite_files::{Hello, Message, due};
use farwrite_keys::Proof;

use crate::channel::{Channel, ChannelError};
use crate::hooks::CANCEL_PERIOD;
use crate::setup::{failed, unexpected, within_setup};
use crate::{Cancel, Error, ErrorKind};

/// An admitted peer that has sent its hello. This end knows what the peer wants, and has not
/// answered yet.
pub struct Client {
    channel: Channel,
    hello: Hello,
}

impl Client {
    /// Waits for the channel of a peer that has connected, and for its hello.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`], [`ErrorKind::Unreachable`] if no hello comes, and
    /// [`ErrorKind::Other`] for another message. The peer is informed.
    pub fn accept(connection: &Connection, cancel: &Cancel) -> Result<Self, Error> {
        let accept = || Channel::accept(connection, CANCEL_PERIOD);
        let mut channel = within_setup(cancel, || accept().map_err(|error| failed(&error)))?;
        match hello(&mut channel, cancel) {
            Ok(hello) => Ok(Self { channel, hello }),
            Err(error) => {
                channel.end(&error.abort());
                Err(error)
            }
        }
    }

    /// Returns whether the peer, a sender, asks what a transfer would do, and sends nothing (P8.9).
    #[must_use]
    pub fn wants_dry_run(&self) -> bool {
        self.hello.has(Hello::DRY_RUNS)
    }

    /// Returns whether the peer, a sender, goes on with files of an interrupted transfer (P8.8).
    #[must_use]
    pub fn resumes(&self) -> bool {
        self.hello.has(Hello::RESUMES)
    }

    /// Returns how the peer has proven who it is.
    #[must_use]
    pub fn proof(&self) -> Proof {
        self.channel.proof()
    }

    /// Returns the address of the peer.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.channel.peer_addr()
    }

    /// Returns the channel, on which this end's hello is the next message.
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }

    /// Informs the client of an error that ends what it wants.
    pub fn fail(self, error: &Error) {
        self.channel.end(&error.abort());
    }

    /// Refuses the client, because this end does not support what it wants. Returns the error that
    /// the client receives.
    #[must_use]
    pub fn refuse(self, why: &str) -> Error {
        let error = Error::new(ErrorKind::Mismatch, why);
        self.channel.end(&error.abort());
        error
    }
}

fn hello(channel: &mut Channel, cancel: &Cancel) -> Result<Hello, Error> {
    channel.set_read_timeout(Some(CANCEL_PERIOD));
    within_setup(cancel, || match channel.recv() {
        Ok(Message::Hello(hello)) => Ok(Some(hello)),
        // The peer's channel writer may send this before the hello.
        Ok(Message::Progress(_)) | Err(ChannelError::Timeout { .. }) => Ok(None),
        Ok(other) => Err(unexpected(other, due::HELLO)),
        Err(error) => Err(failed(&error)),
    })
}
