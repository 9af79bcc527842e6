//! An admitted peer that has sent its hello.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite_files::{Expected, Hello, Message, MessageKind};
use farwrite_session::{Activity, Channel, Error as SessionError, Proof, Text};

use crate::hooks::CANCEL_PERIOD;
use crate::setup::{SETUP, failed, unexpected};
use crate::{Cancel, Error, ErrorKind};

/// The time limit for the last message to a peer that may have stopped reading.
pub(crate) const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// An admitted peer that has sent its hello. This end knows what the peer wants, and has not
/// answered yet.
pub struct Client {
    channel: Channel,
    hello: Hello,
}

impl Client {
    /// Waits for the peer's hello.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`], [`ErrorKind::Unreachable`] if no hello comes, and
    /// [`ErrorKind::Other`] for another message. The peer is informed.
    pub fn accept(mut channel: Channel, cancel: &Cancel) -> Result<Self, Error> {
        match hello(&mut channel, cancel) {
            Ok(hello) => Ok(Self { channel, hello }),
            Err(error) => {
                abort(channel, &error);
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

    /// Returns whether the peer takes warnings of this end (P8.10).
    pub(crate) fn takes_reports(&self) -> bool {
        self.hello.has(Hello::REPORTS)
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
    #[must_use]
    pub(crate) fn into_channel(self) -> Channel {
        self.channel
    }

    /// Informs the client of an error that ends what it wants.
    pub fn fail(self, error: &Error) {
        abort(self.channel, error);
    }

    /// Refuses the client, because this end does not support what it wants. Returns the error that
    /// the client receives.
    #[must_use]
    pub fn refuse(self, why: &str) -> Error {
        let error = Error::new(ErrorKind::Mismatch, why);
        abort(self.channel, &error);
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
            Ok(other) => {
                return Err(unexpected(other, Expected::Message(MessageKind::Hello)));
            }
            Err(SessionError::Timeout { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
        if start.elapsed() >= SETUP {
            return Err(failed(&SessionError::Timeout {
                doing: Activity::Receiving,
                after: SETUP,
            }));
        }
    }
}

fn abort(mut channel: Channel, error: &Error) {
    let (_, writer) = channel.halves();
    writer.set_timeout(Some(LAST_MESSAGE));
    // The peer notices the end of the channel even if this fails.
    let _ = writer.send(&Message::Abort {
        cause: error.cause(),
        reason: Text::new(error),
    });
}
