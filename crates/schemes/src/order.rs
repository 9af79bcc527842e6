//! The order in which chunks are first put on the wire. It determines which chunks a burst of
//! losses hits together.

use crate::scheme::{Message, MessageId};

/// The order in which the chunks of a message, and of its parity message if it has one, are first
/// sent. The order is nominal: a chunk that is not ready in its turn is sent later.
pub trait WireOrder {
    /// Number of chunks of both messages together.
    fn len(&self) -> u32;
    /// The chunk at a position: its message, data or parity, and its number in that message. `None`
    /// past the end. Each chunk has one position.
    fn at(&self, position: u32) -> Option<(MessageId, u32)>;
    /// The position from which on nothing more comes that could repair the chunk at `position`:
    /// that of the last parity chunk of its group. Without parity, its own. `None` past the end.
    fn group_end(&self, position: u32) -> Option<u32> {
        (position < self.len()).then_some(position)
    }
    /// Returns whether each position equals its chunk number and there is no parity.
    fn is_sequence(&self) -> bool {
        false
    }
    /// Returns whether there are no chunks. Every message has at least one.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Chunk by chunk, without parity.
///
/// ```
/// use farwrite_schemes::order::{InSequence, WireOrder};
/// use farwrite_schemes::scheme::{CriticalChunks, Message, MessageId};
///
/// let message = Message {
///     number: 7,
///     bytes: 10_000,
///     chunks: 3,
///     chunk_bytes: 4096,
///     critical: CriticalChunks::NONE,
/// };
/// let order = InSequence::of(&message);
/// assert_eq!(order.at(2), Some((MessageId::new(7), 2)));
/// assert_eq!(order.at(3), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSequence {
    message: MessageId,
    chunks: u32,
}

impl InSequence {
    /// The chunks of this message in sequence.
    pub const fn of(message: &Message) -> Self {
        Self {
            message: MessageId::new(message.number),
            chunks: message.chunks,
        }
    }
}

impl WireOrder for InSequence {
    fn len(&self) -> u32 {
        self.chunks
    }

    fn at(&self, position: u32) -> Option<(MessageId, u32)> {
        (position < self.chunks).then_some((self.message, position))
    }

    fn is_sequence(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::CriticalChunks;

    #[test]
    fn a_sequence_is_in_sequence() {
        let message = Message {
            number: 7,
            bytes: 3 * 4096,
            chunks: 3,
            chunk_bytes: 4096,
            critical: CriticalChunks::NONE,
        };
        let order = InSequence::of(&message);
        assert_eq!((order.len(), order.is_empty()), (3, false));
        let id = MessageId::new(7);
        let all = [Some((id, 0)), Some((id, 1)), Some((id, 2)), None, None];
        assert_eq!([0, 1, 2, 3, u32::MAX].map(|p| order.at(p)), all);
    }
}
