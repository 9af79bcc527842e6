//! In which order chunks first go on the wire: what a burst of losses hits together.

use crate::scheme::Message;

/// The order in which the chunks of a message, and of its parity message if it has one, are first
/// sent. Nominal: what is not ready in its turn goes later.
pub trait WireOrder {
    /// Chunks of both messages together.
    fn len(&self) -> u32;
    /// The chunk at a position: number of the SDR message, and the chunk in it; `None` past the end.
    /// Each chunk has one position.
    fn at(&self, position: u32) -> Option<(u64, u32)>;
    /// Whether position and chunk are the same number, and there is no parity.
    fn is_sequence(&self) -> bool {
        false
    }
    /// Whether there are no chunks; no message is so.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Chunk by chunk, without parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InSequence {
    message: u64,
    chunks: u32,
}

impl InSequence {
    /// The chunks of this message.
    pub const fn of(message: &Message) -> Self {
        Self {
            message: message.number,
            chunks: message.chunks,
        }
    }
}

impl WireOrder for InSequence {
    fn len(&self) -> u32 {
        self.chunks
    }

    fn at(&self, position: u32) -> Option<(u64, u32)> {
        (position < self.chunks).then_some((self.message, position))
    }

    fn is_sequence(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_in_sequence() {
        let message = Message {
            number: 7,
            bytes: 3 * 4096,
            chunks: 3,
            chunk_bytes: 4096,
        };
        let order = InSequence::of(&message);
        assert_eq!((order.len(), order.is_empty()), (3, false));
        let all = [Some((7, 0)), Some((7, 1)), Some((7, 2)), None, None];
        assert_eq!([0, 1, 2, 3, u32::MAX].map(|p| order.at(p)), all);
    }
}
