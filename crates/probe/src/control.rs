//! What the two ends of a probe tell each other: messages over one queue pair of a connection (P9.1).

use std::net::SocketAddr;
use std::time::Duration;

use farwrite::{QpConfig, QpOptions};
use farwrite_connection::{
    Connection, Ended, Error as ConnectionError, MessageOptions, Messages, OpenedQueuePair,
};
use farwrite_keys::{ChannelMessage, Text, decode, encode};

use crate::Error;
use crate::message::{Cause, ProbeMessage};

/// The name of the queue pair.
const NAME: &str = "farwrite probe";
/// Messages of each direction that may be under way. The prober asks, and waits for the answer.
const SLOTS: u32 = 16;
const BUFFERS: usize = 2;
/// Time limit for the last message, to a peer that may be gone.
const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// One end of a probe's control.
pub struct Control {
    messages: Messages,
    /// The address of this end on the way to the peer, and that of the peer.
    local: SocketAddr,
    peer: SocketAddr,
}

impl Control {
    /// The MTU of its packets. Each path of a connection carries such packets, so a connection for a probe need not
    /// look for larger ones.
    pub const MTU: u32 = 1024;

    /// Asks the peer of a connection to answer a probe, and waits for it at most `limit`.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn open(connection: &Connection, limit: Duration) -> Result<Self, Error> {
        let pair = connection.open_queue_pair(NAME, options(), limit)?;
        Self::over(pair)
    }

    /// Waits until the peer of a connection asks for a probe, at most `limit`, and returns `None` after that.
    ///
    /// # Errors
    /// [`Error::Connection`].
    pub fn accept(connection: &Connection, limit: Duration) -> Result<Option<Self>, Error> {
        let pair = connection.accept_queue_pair(Some(NAME), &options(), limit)?;
        pair.map(Self::over).transpose()
    }

    fn over(pair: OpenedQueuePair) -> Result<Self, Error> {
        let messages = pair.into_messages(buffers())?;
        let connection = messages.connection();
        let addresses = connection.local_addr().zip(connection.peer_addr());
        // A connection without addresses is over.
        let Some((local, peer)) = addresses else {
            let ended = connection.ended().unwrap_or(Ended::Closed);
            return Err(ConnectionError::Over(ended).into());
        };
        Ok(Self {
            messages,
            local,
            peer,
        })
    }

    /// The address of this end on the way to the peer.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The address of the peer.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Tells the peer that this end gives up, and why.
    pub fn abort(self, cause: Cause, reason: Text) {
        // If this message is lost, the peer notices the end of the connection.
        let _ = self.end(&ProbeMessage::Abort { cause, reason });
    }

    /// Sends the last message, and ends the connection.
    pub(crate) fn end(self, message: &ProbeMessage) -> Result<(), Error> {
        let sent = self.messages.send(encode(message)?);
        let _ = sent.wait(LAST_MESSAGE);
        self.messages.connection().finish(LAST_MESSAGE);
        Ok(())
    }

    /// Waits until the peer, which has sent the last message, has ended the connection.
    pub(crate) fn leave(self) {
        let _ = self.messages.connection().wait_ended(LAST_MESSAGE);
    }

    pub(crate) fn send(&self, message: &ProbeMessage) -> Result<(), Error> {
        self.messages.send(encode(message)?);
        Ok(())
    }

    /// Waits for a message, at most `limit`, and returns `None` after that.
    pub(crate) fn receive(&self, limit: Duration) -> Result<Option<ProbeMessage>, Error> {
        let came = self.messages.receive(limit)?;
        Ok(came.map(|bytes| decode(&bytes)).transpose()?)
    }
}

fn options() -> QpOptions {
    let sdr = QpConfig {
        mtu: Control::MTU,
        slots: SLOTS,
        parity: false,
        max_message_bytes: ProbeMessage::MAX_BYTES as u64,
        ..QpConfig::default()
    };
    QpOptions {
        sdr,
        ..QpOptions::default()
    }
}

fn buffers() -> MessageOptions {
    MessageOptions {
        longest_bytes: ProbeMessage::MAX_BYTES,
        buffers: BUFFERS,
        most_buffers: BUFFERS,
        ..MessageOptions::default()
    }
}
