//! The configuration of a queue pair: its packets, chunks, slots, generations and channels.

use farwrite_wire::timing::TimingError;

use crate::geometry::Geometry;

/// Largest [`QpConfig::mtu`]: the largest UDP payload over IPv4, minus the 36 bytes of BTH, RETH,
/// `ImmDt` and ICRC, rounded down to a multiple of 4.
pub const MAX_MTU: u32 = 65_468;
/// Smallest [`QpConfig::mtu`].
pub const MIN_MTU: u32 = 64;
/// Largest [`QpConfig::packets_per_chunk`].
pub const MAX_PACKETS_PER_CHUNK: u32 = 1 << 16;
/// Largest [`QpConfig::slots`].
pub const MAX_SLOTS: u32 = 1 << 16;
/// Smallest [`QpConfig::generations`].
pub const MIN_GENERATIONS: u8 = 2;
/// Largest [`QpConfig::generations`].
pub const MAX_GENERATIONS: u8 = 16;
/// Largest [`QpConfig::channels`].
pub const MAX_CHANNELS: u8 = 64;

/// How the 32 bits of an immediate are divided (paper section 3.2.4, P3.3). The three fields must
/// add up to 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmediateSplit {
    /// Bits of the message slot. These are the most significant bits.
    pub id_bits: u8,
    /// Bits of the packet's number within its message; at most 31.
    pub offset_bits: u8,
    /// Bits of the user immediate's fragment. These are the least significant bits. 0: no user
    /// immediates.
    pub user_bits: u8,
}

/// The shape of a queue pair. Both ends must use the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConfig {
    /// Payload bytes of a packet. Must be a multiple of 4.
    pub mtu: u32,
    /// Number of packets for each bit of the chunk bitmap.
    pub packets_per_chunk: u32,
    /// How immediates are divided.
    pub split: ImmediateSplit,
    /// Messages that may be in flight at the same time in one direction. Must be a power of two,
    /// and at most 2^`id_bits`, or half of that with [`QpConfig::parity`].
    pub slots: u32,
    /// Whether a message may have a parity message beside it. The parity message has its own id
    /// (P3.11).
    pub parity: bool,
    /// Bytes of the longest message. At most 2^`offset_bits` x `mtu`.
    pub max_message_bytes: u64,
    /// How many consecutive messages can use a slot before their packets cannot be distinguished by
    /// queue pair (paper section 3.3). At least 2 (P3.10).
    pub generations: u8,
    /// Queue pairs of a generation. They may be served in parallel (paper section 3.4.1).
    pub channels: u8,
}

impl Default for QpConfig {
    /// The paper's 10+18+4 split with all its ids, packets of 4096 bytes, one bit per packet, four
    /// generations and one channel. Messages have up to 1 GiB, and 512 can be in flight, each with
    /// its parity. A posted receive has bitmaps for its buffer. A slot without a receive has none.
    fn default() -> Self {
        Self {
            mtu: 4096,
            packets_per_chunk: 1,
            split: ImmediateSplit {
                id_bits: 10,
                offset_bits: 18,
                user_bits: 4,
            },
            slots: 512,
            parity: true,
            max_message_bytes: 1 << 30,
            generations: 4,
            channels: 1,
        }
    }
}

impl QpConfig {
    /// Checks every field, and returns the arithmetic that follows from them.
    ///
    /// # Errors
    /// The first field that is not valid, with its value and what would be valid.
    pub fn validate(&self) -> Result<Geometry, ConfigError> {
        let in_range = |value: u32, low: u32, high: u32| (low..=high).contains(&value);
        if !in_range(self.mtu, MIN_MTU, MAX_MTU) || !self.mtu.is_multiple_of(4) {
            return Err(ConfigError::Mtu(self.mtu));
        }
        if !in_range(self.packets_per_chunk, 1, MAX_PACKETS_PER_CHUNK) {
            return Err(ConfigError::PacketsPerChunk(self.packets_per_chunk));
        }
        // Parity and repeats can still be in flight when a message ends. They must not count for the
        // next message of the slot (P3.10).
        if !(MIN_GENERATIONS..=MAX_GENERATIONS).contains(&self.generations) {
            return Err(ConfigError::Generations(self.generations));
        }
        if !in_range(self.channels.into(), 1, MAX_CHANNELS.into()) {
            return Err(ConfigError::Channels(self.channels));
        }
        self.validate_split()?;
        Ok(Geometry::new(*self))
    }

    fn validate_split(&self) -> Result<(), ConfigError> {
        let split = self.split;
        let bits =
            u32::from(split.id_bits) + u32::from(split.offset_bits) + u32::from(split.user_bits);
        if bits != 32 || split.offset_bits > 31 {
            return Err(ConfigError::Split(split));
        }
        let ids = MAX_SLOTS.min(1_u32.checked_shl(split.id_bits.into()).unwrap_or(MAX_SLOTS));
        let max_slots = ids >> u32::from(self.parity);
        if !self.slots.is_power_of_two() || self.slots > max_slots {
            return Err(ConfigError::Slots {
                slots: self.slots,
                max: max_slots,
            });
        }
        let max_packets = 1_u64 << split.offset_bits;
        let max_bytes = max_packets * u64::from(self.mtu);
        if self.max_message_bytes == 0 || self.max_message_bytes > max_bytes {
            return Err(ConfigError::MaxMessageBytes {
                bytes: self.max_message_bytes,
                max: max_bytes,
            });
        }
        let fragments = fragments(split.user_bits);
        if u64::from(fragments) > max_packets {
            return Err(ConfigError::Fragments { split, fragments });
        }
        Ok(())
    }
}

/// Number of packets that a 32-bit user immediate needs with `user_bits` bits per packet.
pub(crate) fn fragments(user_bits: u8) -> u32 {
    32_u32
        .checked_div(user_bits.into())
        .map_or(0, |_| 32_u32.div_ceil(user_bits.into()))
}

/// Why a [`QpConfig`] or its timing is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// [`QpConfig::mtu`].
    #[error("mtu = {0}: must be a multiple of 4 from {MIN_MTU} to {MAX_MTU} bytes")]
    Mtu(u32),
    /// [`QpConfig::packets_per_chunk`].
    #[error("packets_per_chunk = {0}: must be from 1 to {MAX_PACKETS_PER_CHUNK}")]
    PacketsPerChunk(u32),
    /// [`QpConfig::split`].
    #[error(
        "split = {}+{}+{}: must add up to 32 bits, of which at most 31 of offset",
        .0.id_bits, .0.offset_bits, .0.user_bits
    )]
    Split(ImmediateSplit),
    /// [`QpConfig::slots`].
    #[error(
        "slots = {slots}: must be a power of two, and at most {max}: a message takes one id of the split, with parity two"
    )]
    Slots {
        /// The value in the configuration.
        slots: u32,
        /// The largest valid value.
        max: u32,
    },
    /// [`QpConfig::max_message_bytes`].
    #[error("max_message_bytes = {bytes}: must be from 1 to {max} with this split and mtu")]
    MaxMessageBytes {
        /// The value in the configuration.
        bytes: u64,
        /// The largest valid value.
        max: u64,
    },
    /// Even the message with the most packets could not carry a whole user immediate.
    #[error(
        "split = {}+{}+{}: a user immediate takes {fragments} packets, more than {} offset bits count",
        .split.id_bits, .split.offset_bits, .split.user_bits, .split.offset_bits
    )]
    Fragments {
        /// The split.
        split: ImmediateSplit,
        /// Packets that a user immediate needs.
        fragments: u32,
    },
    /// [`QpConfig::generations`].
    #[error("generations = {0}: must be from {MIN_GENERATIONS} to {MAX_GENERATIONS}")]
    Generations(u8),
    /// [`QpConfig::channels`].
    #[error("channels = {0}: must be from 1 to {MAX_CHANNELS}")]
    Channels(u8),
    /// The timing of the queue pair.
    #[error(transparent)]
    Timing(#[from] TimingError),
}
