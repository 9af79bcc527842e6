//! Counters of a fabric.

/// Why a received packet was not applied, in the order in which packets are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// The packet is too short, or lengths within it disagree.
    Malformed,
    /// The ICRC does not match.
    BadIcrc,
    /// The port that received the packet has no queue pair with the destination number.
    UnknownQp,
    /// The packet is not a SEND, and came from an address that the queue pair does not permit, or
    /// the queue pair is not connected.
    Stranger,
    /// The fabric does not serve the opcode. (A byte that is not a valid opcode counts as
    /// malformed, because the rest of the packet cannot be parsed.)
    UnsupportedOpcode,
    /// The payload exceeds the queue pair's MTU.
    TooLong,
    /// A SEND arrived at a queue pair without receive buffers.
    NoReceive,
    /// The counter of a sealed write was accepted before, or is too old to know (P2.7).
    Replayed,
    /// The tag of a sealed write is wrong, or a write to a sealed queue pair is not sealed.
    BadTag,
    /// The key was never assigned, or its window set was destroyed so long ago that the fabric no
    /// longer remembers it.
    UnknownKey,
    /// The key's window set was destroyed.
    RevokedKey,
    /// The key's window set is bound to other queue pairs than the one that the packet names.
    ForeignKey,
    /// The bytes lie outside the window, or not within one slot.
    OutOfBounds,
    /// The slot has the null key: no window is open there. The write completed, and its payload was
    /// dropped.
    NullKey,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 14] = [
        Self::Malformed,
        Self::BadIcrc,
        Self::UnknownQp,
        Self::Stranger,
        Self::UnsupportedOpcode,
        Self::TooLong,
        Self::NoReceive,
        Self::Replayed,
        Self::BadTag,
        Self::UnknownKey,
        Self::RevokedKey,
        Self::ForeignKey,
        Self::OutOfBounds,
        Self::NullKey,
    ];
}

/// Packets that a fabric has carried since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of IP datagrams sent.
    pub sent_bytes: u64,
    /// Packets received and applied.
    pub received_packets: u64,
    /// Bytes of IP datagrams received and applied.
    pub received_bytes: u64,
    /// SENDs from an address that their queue pair does not permit. They are included in the
    /// received and applied packets.
    pub unvalidated_packets: u64,
    /// Packets that the operating system dropped because a socket buffer was full. If strangers'
    /// packets have a separate socket, its drops are not included.
    pub socket_drops: u64,
    /// Packets that the operating system dropped because the buffer of a socket that receives only
    /// strangers' packets was full.
    pub stranger_drops: u64,
    /// Packets that were not applied, by [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Packets received from the sockets, whether applied or not.
    #[must_use]
    pub fn taken_packets(&self) -> u64 {
        self.dropped.iter().sum::<u64>() + self.received_packets
    }

    /// Packets that came from the peer of a queue pair and completed, with or without placing their
    /// payload.
    #[must_use]
    pub fn accepted_packets(&self) -> u64 {
        let completed = self.received_packets + self.dropped(DropReason::NullKey);
        completed.saturating_sub(self.unvalidated_packets)
    }

    /// Packets that were not applied for one reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}
