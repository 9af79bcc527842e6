//! The notices of a connection: messages that the channel does not delay (P8.11).

use farwrite_connection::Connection;
use farwrite_files::{Message, MessageError, due};
use farwrite_keys::{Error as SessionError, decode, encode};

use crate::channel::ChannelError;

/// Sends notices to the peer, and has the last one of the peer, also after the end of the connection.
#[derive(Clone, Debug)]
pub(crate) struct Notices(pub(crate) Connection);

impl Notices {
    /// Sends a notice. It replaces one that has not left, and does not wait.
    ///
    /// # Errors
    /// [`ChannelError::Connection`] for a message that is too long for a notice.
    pub(crate) fn notify(&self, message: &Message) -> Result<(), ChannelError> {
        Ok(self.0.notify(encode(message)?)?)
    }

    /// How many notices of the peer have come.
    pub(crate) fn count(&self) -> u64 {
        self.0.notices_heard()
    }

    /// How many notices of the peer have come, and the last one, a sign of life or an abort, if these are more than
    /// `seen`.
    ///
    /// # Errors
    /// [`ChannelError::Message`], also for a message that must be on the channel (P8.11).
    pub(crate) fn after(&self, seen: u64) -> Result<Option<(u64, Message)>, ChannelError> {
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
        Ok(Some((count, message)))
    }

    /// Why the peer has given up, if it has. Then this is its last notice.
    pub(crate) fn abort(&self) -> Option<MessageError> {
        match self.after(0) {
            Ok(Some((_, abort @ Message::Abort { .. }))) => {
                Some(abort.unexpected(due::ABOUT_FILES))
            }
            _ => None,
        }
    }
}
