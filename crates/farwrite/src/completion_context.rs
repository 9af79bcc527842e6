//! Identifies the queue pair that a completion belongs to.

use crate::handle::QueuePair;

/// Identifies the queue pair of an endpoint that a queue pair of the fabric serves, and its role.
/// The fabric returns it with every completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompletionContext {
    pub(crate) pair: QueuePair,
    pub(crate) role: Role,
}

/// The role of a queue pair of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Data of the messages of one generation.
    Data { generation: u8 },
    /// Control packets.
    Control,
}

/// No generation has this number (`farwrite_sdr::MAX_GENERATIONS`).
const CONTROL: u8 = u8::MAX;
const _: () = assert!(farwrite_sdr::MAX_GENERATIONS < CONTROL);

impl CompletionContext {
    /// Returns the number that the fabric stores: index, serial and role in 24, 32 and 8 bits.
    pub(crate) fn encode(self) -> u64 {
        let QueuePair { index, serial } = self.pair;
        debug_assert!(index < 1 << 24);
        let role = match self.role {
            Role::Data { generation } => generation,
            Role::Control => CONTROL,
        };
        u64::from(index) << 40 | u64::from(serial) << 8 | u64::from(role)
    }

    /// Reads the number that the fabric stored.
    // Each cast keeps the bits of one field.
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn decode(context: u64) -> Self {
        Self {
            pair: QueuePair {
                serial: (context >> 8) as u32,
                index: (context >> 40) as u32,
            },
            role: match context as u8 {
                CONTROL => Role::Control,
                generation => Role::Data { generation },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_survives_the_fabric() {
        for role in [Role::Control, Role::Data { generation: 15 }] {
            for (index, serial) in [(0, 0), (1, u32::MAX), ((1 << 24) - 1, 7)] {
                let pair = QueuePair { index, serial };
                let context = CompletionContext { pair, role };
                assert_eq!(CompletionContext::decode(context.encode()), context);
            }
        }
    }
}
