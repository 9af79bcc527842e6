//! A peer that was let in and has said hello.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farwrite_session::{Channel, Error as SessionError, Hello, Message, Text};

use crate::host::CANCEL_PERIOD;
use crate::setup::{SETUP, failed};
use crate::{Cancel, Error, ErrorKind};

/// For the last message to a peer that may have stopped reading.
const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// A peer that was let in and has said hello. What it wants is known then, and nothing was answered.
pub struct Visitor {
    channel: Channel,
    hello: Hello,
}

impl Visitor {
    /// Waits for the peer's hello.
    ///
    /// # Errors
    /// [`ErrorKind::Interrupted`], [`ErrorKind::Unreachable`] where none comes, and
    /// [`ErrorKind::Other`] for another message. The peer learns of it.
    pub fn greet(mut channel: Channel, cancel: &Cancel) -> Result<Self, Error> {
        match hello(&mut channel, cancel) {
            Ok(hello) => Ok(Self { channel, hello }),
            Err(error) => {
                turn_away(channel, &error);
                Err(error)
            }
        }
    }

    /// Whether it wants to probe the path (P9), and not to send files.
    #[must_use]
    pub fn wants_probe(&self) -> bool {
        self.hello.has(Hello::PROBES)
    }

    /// Where it comes from.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.channel.peer_addr()
    }

    /// The channel, on which this end's hello is due.
    #[must_use]
    pub fn into_channel(self) -> Channel {
        self.channel
    }

    /// Turns it away, for what it wants is not served here; answers with the error that it learns.
    #[must_use]
    pub fn refuse(self, why: &str) -> Error {
        let error = Error::new(ErrorKind::Mismatch, why);
        turn_away(self.channel, &error);
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
            // Its speaker may have come before its hello.
            Ok(Message::Progress(_)) => {}
            Ok(other) => return Err(failed(&other.unexpected("a hello"))),
            Err(SessionError::Timeout { .. }) => {}
            Err(error) => return Err(failed(&error)),
        }
        if start.elapsed() >= SETUP {
            return Err(failed(&SessionError::Timeout {
                doing: "receiving",
                after: SETUP,
            }));
        }
    }
}

fn turn_away(mut channel: Channel, error: &Error) {
    let (_, writer) = channel.halves();
    writer.set_timeout(Some(LAST_MESSAGE));
    // The peer notices the end of the channel in any case.
    let _ = writer.send(&Message::Abort {
        cause: error.cause(),
        reason: Text::new(error),
    });
}
