//! What a fabric counts.

/// Why an arriving packet was not applied, in the order in which packets are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropReason {
    /// Too short, or lengths within it disagree.
    Malformed,
    /// The ICRC does not match.
    BadIcrc,
    /// No queue pair of the port that it came in by has the destination number.
    UnknownQp,
    /// It is no SEND and came from an address that the queue pair does not permit, or the queue
    /// pair is not connected.
    Stranger,
    /// An opcode that this fabric does not serve. (A byte that is no opcode at all is found before
    /// anything else, for the rest cannot be read.)
    UnsupportedOpcode,
    /// The payload exceeds the queue pair's MTU.
    TooLong,
    /// A SEND to a queue pair without receive buffers.
    NoReceive,
    /// The key was never given out, or its window set was destroyed too long ago to be remembered.
    UnknownKey,
    /// The key's window set was destroyed.
    RevokedKey,
    /// The bytes would land outside the window, or not within one slot.
    OutOfBounds,
    /// The slot has the null key: no window is open there. The write completed, its payload was
    /// dropped.
    NullKey,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::BadIcrc,
        Self::UnknownQp,
        Self::Stranger,
        Self::UnsupportedOpcode,
        Self::TooLong,
        Self::NoReceive,
        Self::UnknownKey,
        Self::RevokedKey,
        Self::OutOfBounds,
        Self::NullKey,
    ];
}

/// What a fabric has carried since it was made.
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
    /// Of the packets received and applied, SENDs from an address that their queue pair does not
    /// permit.
    pub unvalidated_packets: u64,
    /// Packets that the operating system dropped for want of room in a socket. Where strangers'
    /// packets have a socket to themselves, those dropped there are not among them.
    pub socket_drops: u64,
    /// Packets that the operating system dropped for want of room in a socket that takes packets of
    /// strangers only.
    pub stranger_drops: u64,
    /// Packets not applied, by [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Packets taken from the sockets, applied or not.
    #[must_use]
    pub fn taken_packets(&self) -> u64 {
        self.dropped.iter().sum::<u64>() + self.received_packets
    }

    /// Packets that came from the peer of a queue pair and completed, whatever became of their
    /// payload.
    #[must_use]
    pub fn accepted_packets(&self) -> u64 {
        let completed = self.received_packets + self.dropped(DropReason::NullKey);
        completed.saturating_sub(self.unvalidated_packets)
    }

    /// Packets not applied for one reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }
}
