//! The notices of a connection: messages that the channel does not delay (P8.11).

use farwrite_connection::Connection;
use farwrite_files::{Message, MessageError, due};
use farwrite_keys::{ChannelMessage, Error as SessionError, decode, encode};

use crate::channel::ChannelError;

/// Sends notices to the peer, and has the last one of the peer, also after the end of the connection.
#[derive(Clone, Debug)]
pub(crate) struct Notices(pub(crate) Connection);

/// The last notice of the peer.
pub(crate) struct Heard {
    /// How many have come.
    pub(crate) count: u64,
    pub(crate) bytes: Vec<u8>,
    /// A sign of life, or an abort.
    pub(crate) message: Message,
}

impl Notices {
    /// Sends a notice. It replaces one that has not left, and does not wait.
    ///
    /// # Errors
    /// [`ChannelError::Connection`] for a message that is too long for a notice.
    pub(crate) fn notify<T: ChannelMessage>(&self, message: &T) -> Result<(), ChannelError> {
        Ok(self.0.notify(encode(message)?)?)
    }

    /// How many notices of the peer have come.
    pub(crate) fn count(&self) -> u64 {
        self.0.notices_heard()
    }

    /// The last notice of the peer, if more than `seen` have come.
    ///
    /// # Errors
    /// [`ChannelError::Message`], also for a message that must be on the channel (P8.11).
    pub(crate) fn after(&self, seen: u64) -> Result<Option<Heard>, ChannelError> {
        let Some((count, bytes)) = self.0.notice_after(seen) else {
            return Ok(None);
        };
        let message: Message = decode(&bytes)?;
        if !matches!(message, Message::Progress(_) | Message::Abort { .. }) {
            let why = message.unexpected("a sign of life or an abort").to_string();
            let (name, came_bytes) = ("notice", bytes.len());
            return Err(SessionError::Malformed {
                name,
                came_bytes,
                why,
            }
            .into());
        }
        Ok(Some(Heard {
            count,
            bytes,
            message,
        }))
    }

    /// Why the peer has given up, if it has. Then this is its last notice.
    pub(crate) fn abort(&self) -> Option<MessageError> {
        match self.after(0) {
            Ok(Some(Heard {
                message: abort @ Message::Abort { .. },
                ..
            })) => Some(abort.unexpected(due::ABOUT_FILES)),
            _ => None,
        }
    }
}
