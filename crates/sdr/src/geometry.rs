//! The arithmetic of a queue pair: the slot, packet, chunk and channel of everything (P3).

use farwrite_wire::control::MessageId;

use crate::config::{QpConfig, fragments};

/// Least number of packets that use one channel before the next channel takes its turn. With this
/// number, a batch that is handed to the carrier at once (UDP GSO: 64 KiB) is rarely split.
const CHANNEL_RUN_PACKETS: u32 = 16;

/// The three fields of an immediate (P3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmediateParts {
    /// Slot of the message. An immediate from a peer can name a slot that does not exist.
    pub slot: u32,
    /// Number of the packet within its message.
    pub packet: u32,
    /// Fragment of the user immediate.
    pub fragment: u32,
}

/// A checked [`QpConfig`], and the values derived from it.
///
/// ```
/// use farwrite_sdr::{ConfigError, QpConfig};
///
/// let config = QpConfig { mtu: 4096, packets_per_chunk: 16, ..QpConfig::default() };
/// let geometry = config.validate()?;
/// // 1 MiB and a byte.
/// let length = (1 << 20) + 1;
/// assert_eq!((geometry.packets(length, false), geometry.chunks(length, false)), (257, 17));
/// assert_eq!(geometry.packet_bytes(length, false, 256), Some(1));
/// // Slots are used in turn. Each time around is another generation.
/// let slots = u64::from(geometry.slots());
/// assert_eq!((geometry.slot(slots), geometry.generation(slots)), (0, 1));
/// # Ok::<(), ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    config: QpConfig,
    slot_bytes: u64,
    max_packets: u32,
    fragments: u32,
    run_chunks: u32,
    /// If the number of packets in a chunk is a power of two, its exponent. A shift is faster than
    /// a division, and receive workers need it for every packet.
    chunk_shift: Option<u32>,
}

impl Geometry {
    /// Creates it from a configuration whose fields have been checked individually.
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

    /// The configuration that it was created from.
    #[must_use]
    pub fn config(&self) -> &QpConfig {
        &self.config
    }

    /// Payload bytes of every packet except the last.
    #[must_use]
    pub fn mtu(&self) -> u32 {
        self.config.mtu
    }

    /// Bytes of every chunk except the last.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.config.mtu) * u64::from(self.config.packets_per_chunk)
    }

    /// Bytes of a slot's address range: the longest message, rounded up to a chunk.
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

    /// Number of all slots: the message slots, followed by the same number of parity slots.
    #[must_use]
    pub fn table_slots(&self) -> u32 {
        self.config.slots << u32::from(self.config.parity)
    }

    /// Slot of a message, or of a parity message (P3.11).
    #[must_use]
    pub fn slot(&self, message: impl Into<MessageId>) -> u32 {
        let message = message.into();
        let slot = low_u32(message.data() & u64::from(self.config.slots - 1));
        match message.is_parity() {
            true => self.config.slots + slot,
            false => slot,
        }
    }

    /// Generation of a message; its parity has the same.
    #[must_use]
    pub fn generation(&self, message: impl Into<MessageId>) -> u8 {
        let reuse = message.into().data() / u64::from(self.config.slots);
        (reuse % u64::from(self.config.generations)).to_le_bytes()[0]
    }

    /// Number of packets of a message: one for each started MTU, at least one, and enough to carry
    /// the user immediate if there is one. `length` must not exceed the longest message.
    #[must_use]
    pub fn packets(&self, length: u64, has_immediate: bool) -> u32 {
        let floor = if has_immediate { self.fragments } else { 0 };
        packets(length, self.config.mtu).max(floor)
    }

    /// Number of packets of the longest message, including its user immediate.
    #[must_use]
    pub fn max_packets(&self) -> u32 {
        self.max_packets
    }

    /// Number of chunks of a message.
    #[must_use]
    pub fn chunks(&self, length: u64, has_immediate: bool) -> u32 {
        self.packets(length, has_immediate)
            .div_ceil(self.config.packets_per_chunk)
    }

    /// Payload bytes of packet `packet` of a message. Returns `None` if the message has no such
    /// packet.
    #[must_use]
    pub fn packet_bytes(&self, length: u64, has_immediate: bool, packet: u32) -> Option<u32> {
        let offset = self.packet_offset(packet);
        if offset < length {
            return Some(low_u32((length - offset).min(self.config.mtu.into())));
        }
        let padding = packet == 0 || (has_immediate && packet < self.fragments);
        padding.then_some(0)
    }

    /// Returns whether some packets of a message carry no bytes. Such packets carry only a user
    /// immediate, or nothing.
    #[must_use]
    pub fn has_empty_packets(&self, length: u64, has_immediate: bool) -> bool {
        length.div_ceil(self.config.mtu.into()) < self.packets(length, has_immediate).into()
    }

    /// Offset of a packet's bytes in its message.
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

    /// Channel that carries a chunk of a message.
    ///
    /// Channels take turns in runs of whole chunks of at least 16 packets. So one worker sees all
    /// packets of a chunk, and batches stay whole. Messages start on different channels, so that
    /// many short messages also use all channels. A receiver does not rely on this (P3.5).
    #[must_use]
    pub fn channel(&self, message: impl Into<MessageId>, chunk: u32) -> u8 {
        let message = message.into().data();
        let turn = message.wrapping_add(u64::from(chunk / self.run_chunks));
        (turn % u64::from(self.config.channels)).to_le_bytes()[0]
    }

    /// Number of packets over which a user immediate is spread. 0 if the split has no user
    /// immediates.
    #[must_use]
    pub fn fragments(&self) -> u32 {
        self.fragments
    }

    /// Position in the user immediate of the fragment that packet `packet` carries: its number, and
    /// its lowest bit. Returns `None` if the split has no user immediates.
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

    /// Encodes an immediate. The parts must fit their fields.
    ///
    /// ```
    /// use farwrite_sdr::{ConfigError, ImmediateParts, QpConfig};
    ///
    /// let geometry = QpConfig::default().validate()?;
    /// let parts = ImmediateParts { slot: 3, packet: 70_000, fragment: 9 };
    /// let imm = geometry.encode_immediate(parts);
    /// assert_eq!(geometry.decode_immediate(imm), parts);
    /// # Ok::<(), ConfigError>(())
    /// ```
    #[must_use]
    pub fn encode_immediate(&self, parts: ImmediateParts) -> u32 {
        let split = self.config.split;
        let shl = |value: u32, bits: u8| value.checked_shl(bits.into()).unwrap_or(0);
        shl(parts.slot, split.offset_bits + split.user_bits)
            | shl(parts.packet, split.user_bits)
            | parts.fragment
    }

    /// Decodes an immediate. Every bit pattern has a meaning. The slot and the packet may not
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

/// One packet for each started MTU, at least one.
fn packets(length: u64, mtu: u32) -> u32 {
    low_u32(length.div_ceil(mtu.into()).max(1))
}

/// A mask of the `bits` lowest bits.
fn mask(bits: u8) -> u32 {
    u32::MAX.checked_shr(32 - u32::from(bits)).unwrap_or(0)
}

/// Converts a number that is known to fit in 32 bits.
fn low_u32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
