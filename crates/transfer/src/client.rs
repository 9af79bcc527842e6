//! An admitted peer that has sent its hello.

use std::net::SocketAddr;
use std::time::Instant;

use farwrite_connection::Connection;
use farwrite_files::{Hello, Message, due};
use farwrite_keys::Proof;

use crate::channel::{Channel, ChannelError};
use crate::connect::accept;
use crate::hooks::CANCEL_PERIOD;
use crate::setup::{SETUP, failed, unexpected};
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
        let mut channel = accept(connection, cancel)?;
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
    let start = Instant::now();
    channel.set_read_timeout(Some(CANCEL_PERIOD));
    loop {
        cancel.check()?;
        match channel.recv() {
            Ok(Message::Hello(hello)) => return Ok(hello),
            // The peer's channel writer may send this before the hello.
            Ok(Message::Progress(_)) => {}
            Ok(other) => return Err(unexpected(other, due::HELLO)),
            Err(ChannelError::Timeout { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
        if start.elapsed() >= SETUP {
            return Err(failed(&ChannelError::Timeout { after: SETUP }));
        }
    }
}
