//! The arithmetic of a queue pair: which slot, packet, chunk and channel everything is in (P3).

use farwrite_wire::control::{data_of, is_parity};

use crate::config::{QpConfig, fragments};

/// Packets that go through one channel before the next takes its turn, at least: enough that a
/// batch handed to the carrier at once (UDP GSO: 64 KiB) is rarely cut.
const CHANNEL_RUN_PACKETS: u32 = 16;

/// The three fields of an immediate (P3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmediateParts {
    /// Slot of the message; may be past the last slot if it comes from a peer.
    pub slot: u32,
    /// Number of the packet within its message.
    pub packet: u32,
    /// Fragment of the user immediate.
    pub fragment: u32,
}

/// A checked [`QpConfig`], and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    config: QpConfig,
    slot_bytes: u64,
    max_packets: u32,
    fragments: u32,
    run_chunks: u32,
    /// A chunk has two to the power of this packets, if that is so: a shift is faster than a
    /// division, and receive workers need it for every packet.
    chunk_shift: Option<u32>,
}

impl Geometry {
    /// From a configuration whose fields have been checked one by one.
    pub(crate) fn new(config: QpConfig) -> Self {
        let chunk_bytes = u64::from(config.mtu) * u64::from(config.packets_per_chunk);
        let fragments = fragments(config.split.user_bits);
        Self {
            config,
            slot_bytes: config.max_message_bytes.next_multiple_of(chunk_bytes),
            max_packets: packets(config.max_message_bytes, config.mtu).max(fragments),
            fragments,
            run_chunks: CHANNEL_RUN_PACKETS.div_ceil(config.packets_per_chunk),
            chunk_shift: config
                .packets_per_chunk
                .checked_ilog2()
                .filter(|shift| 1 << shift == config.packets_per_chunk),
        }
    }

    /// What it was made from.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Payload bytes of a packet that is not the last.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.config.mtu
    }

    /// Bytes of a chunk that is not the last.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.config.mtu) * u64::from(self.config.packets_per_chunk)
    }

    /// Bytes of the address range that a slot has: the longest message, rounded up to a chunk.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// First address of a slot under the root key of a generation (paper Fig. 5, P3.4).
    #[must_use]
    pub fn slot_base(&self, slot: u32) -> u64 {
        u64::from(slot) * self.slot_bytes
    }

    /// Number of message slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.config.slots
    }

    /// Number of generations.
    #[must_use]
    pub fn generations(&self) -> u8 {
        self.config.generations
    }

    /// Number of all slots: those of messages, and behind them as many for their parity.
    #[must_use]
    pub fn table_slots(&self) -> u32 {
        self.config.slots << u32::from(self.config.parity)
    }

    /// Slot of a message, or of a parity message (P3.11).
    #[must_use]
    pub fn slot(&self, message: u64) -> u32 {
        let slot = low_u32(message & u64::from(self.config.slots - 1));
        slot + if is_parity(message) {
            self.config.slots
        } else {
            0
        }
    }

    /// Generation of a message; its parity has the same.
    #[must_use]
    pub fn generation(&self, message: u64) -> u8 {
        let reuse = data_of(message) / u64::from(self.config.slots);
        (reuse % u64::from(self.config.generations)).to_le_bytes()[0]
    }

    /// Packets of a message: one a started MTU, at least one, and enough to carry the user
    /// immediate if there is one. `length` must not exceed the longest message.
    #[must_use]
    pub fn packets(&self, length: u64, has_immediate: bool) -> u32 {
        let floor = if has_immediate { self.fragments } else { 0 };
        packets(length, self.config.mtu).max(floor)
    }

    /// Packets of the longest message, user immediate included.
    #[must_use]
    pub fn max_packets(&self) -> u32 {
        self.max_packets
    }

    /// Chunks of a message.
    #[must_use]
    pub fn chunks(&self, length: u64, has_immediate: bool) -> u32 {
        self.packets(length, has_immediate)
            .div_ceil(self.config.packets_per_chunk)
    }

    /// Payload bytes of packet `packet` of a message; `None` where the message has no such packet.
    #[must_use]
    pub fn packet_bytes(&self, length: u64, has_immediate: bool, packet: u32) -> Option<u32> {
        let offset = self.packet_offset(packet);
        if offset < length {
            return Some(low_u32((length - offset).min(self.config.mtu.into())));
        }
        let padding = packet == 0 || (has_immediate && packet < self.fragments);
        padding.then_some(0)
    }

    /// Whether some packets of a message carry no bytes, but only a user immediate or nothing.
    #[must_use]
    pub fn has_empty_packets(&self, length: u64, has_immediate: bool) -> bool {
        length.div_ceil(self.config.mtu.into()) < self.packets(length, has_immediate).into()
    }

    /// Where a packet's bytes lie in its message.
    #[must_use]
    pub fn packet_offset(&self, packet: u32) -> u64 {
        u64::from(packet) * u64::from(self.config.mtu)
    }

    /// Chunk that a packet belongs to.
    #[must_use]
    pub fn chunk_of(&self, packet: u32) -> u32 {
        match self.chunk_shift {
            Some(shift) => packet >> shift,
            None => packet / self.config.packets_per_chunk,
        }
    }

    /// Channel that a chunk of a message goes through.
    ///
    /// Channels take turns in runs of whole chunks of at least 16 packets, so that one worker sees
    /// all packets of a chunk and batches stay whole; messages start on different channels, so that
    /// many short ones spread too. A receiver does not rely on it (P3.5).
    #[must_use]
    pub fn channel(&self, message: u64, chunk: u32) -> u8 {
        let turn = message.wrapping_add(u64::from(chunk / self.run_chunks));
        (turn % u64::from(self.config.channels)).to_le_bytes()[0]
    }

    /// Packets over which a user immediate is spread; 0 where there are no user immediates.
    #[must_use]
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// Where the fragment that packet `packet` carries lies in the user immediate: its number, and
    /// its lowest bit. `None` where there are no user immediates.
    #[must_use]
    pub fn fragment_place(&self, packet: u32) -> Option<(u32, u32)> {
        let index = packet.checked_rem(self.fragments)?;
        Some((index, index * u32::from(self.config.split.user_bits)))
    }

    /// The fragment of `immediate` that packet `packet` carries.
    #[must_use]
    pub fn fragment(&self, immediate: u32, packet: u32) -> u32 {
        self.fragment_place(packet).map_or(0, |(_, shift)| {
            (immediate >> shift) & mask(self.config.split.user_bits)
        })
    }

    /// Puts an immediate together. The parts must fit their fields.
    #[must_use]
    pub fn encode_immediate(&self, parts: ImmediateParts) -> u32 {
        let split = self.config.split;
        let shl = |value: u32, bits: u8| value.checked_shl(bits.into()).unwrap_or(0);
        shl(parts.slot, split.offset_bits + split.user_bits)
            | shl(parts.packet, split.user_bits)
            | parts.fragment
    }

    /// Takes an immediate apart. Every bit pattern has a meaning; the slot and the packet may not
    /// exist.
    #[must_use]
    pub fn decode_immediate(&self, imm: u32) -> ImmediateParts {
        let split = self.config.split;
        let shr = |bits: u8| imm.checked_shr(bits.into()).unwrap_or(0);
        ImmediateParts {
            slot: shr(split.offset_bits + split.user_bits),
            packet: shr(split.user_bits) & mask(split.offset_bits),
            fragment: imm & mask(split.user_bits),
        }
    }
}

/// One packet a started MTU, at least one.
fn packets(length: u64, mtu: u32) -> u32 {
    low_u32(length.div_ceil(mtu.into()).max(1))
}

/// The `bits` lowest bits.
fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shr(32 - u32::from(bits)).unwrap_or(0)
}

/// A number known to fit 32 bits.
fn low_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
