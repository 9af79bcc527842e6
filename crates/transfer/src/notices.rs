//! The notices of a connection: messages that the channel does not delay (P8.13).

use farwrite_connection::Connection;
use farwrite_files::{Message, MessageError, due};
use farwrite_keys::{ChannelMessage, decode, encode};

use crate::channel::ChannelError;

/// Sends notices to the peer, and has the last one of the peer, also after the end of the connection.
#[derive(Clone, Debug)]
pub(crate) struct Notices(pub(crate) Connection);

impl Notices {
    /// Sends a notice. It replaces one that has not left, and does not wait.
    ///
    /// # Errors
    /// [`ChannelError::Connection`] for a message that is too long for a notice.
    pub(crate) fn notify<T: ChannelMessage>(&self, message: &T) -> Result<(), ChannelError> {
        Ok(self.0.notify(encode(message)?)?)
    }

    /// Whether more than `seen` notices of the peer have come.
    pub(crate) fn has_after(&self, seen: u64) -> bool {
        self.0.notice_after(seen).is_some()
    }

    /// The last notice of the peer, and how many have come, if these are more than `seen`.
    ///
    /// # Errors
    /// [`ChannelError::Message`].
    pub(crate) fn after<T: ChannelMessage>(
        &self,
        seen: u64,
    ) -> Result<Option<(u64, T)>, ChannelError> {
        match self.0.notice_after(seen) {
            Some((count, notice)) => Ok(Some((count, decode(&notice)?))),
            None => Ok(None),
        }
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
