//! The words of a connection: messages that the channel does not delay (P8.13).

use farwrite_connection::Connection;
use farwrite_files::{Expected, Message, MessageError};
use farwrite_keys::{ChannelMessage, decode, encode};

use crate::channel::ChannelError;

/// Says words to the peer, and has the last one of the peer, also after the end of the connection.
#[derive(Clone, Debug)]
pub(crate) struct Words(pub(crate) Connection);

impl Words {
    /// Says a word. It replaces one that has not left, and does not wait.
    ///
    /// # Errors
    /// [`ChannelError::Connection`] for a message that is too long for a word.
    pub(crate) fn say<T: ChannelMessage>(&self, message: &T) -> Result<(), ChannelError> {
        Ok(self.0.say(encode(message)?)?)
    }

    /// Whether more than `seen` words of the peer have come.
    pub(crate) fn has_after(&self, seen: u64) -> bool {
        self.0.word_after(seen).is_some()
    }

    /// The last word of the peer, and how many have come, if these are more than `seen`.
    ///
    /// # Errors
    /// [`ChannelError::Message`].
    pub(crate) fn after<T: ChannelMessage>(
        &self,
        seen: u64,
    ) -> Result<Option<(u64, T)>, ChannelError> {
        match self.0.word_after(seen) {
            Some((count, word)) => Ok(Some((count, decode(&word)?))),
            None => Ok(None),
        }
    }

    /// Why the peer has given up, if it has. Then this is its last word.
    pub(crate) fn abort(&self) -> Option<MessageError> {
        match self.after(0) {
            Ok(Some((_, abort @ Message::Abort { .. }))) => {
                Some(abort.unexpected(Expected::AboutFiles))
            }
            _ => None,
        }
    }
}
