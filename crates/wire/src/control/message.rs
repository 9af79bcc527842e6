//! The bodies of a control packet, as plain structs.

use super::critical::CriticalChunks;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

/// One control message. A control packet carries one header and any number of these that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Sender to receiver: announces a message (P4.3).
    Offer(Offer),
    /// Receiver to sender: buffers are posted (P4.4).
    ClearToSend(ClearToSend),
    /// Receiver to sender: what has arrived (P4.5).
    Ack(Ack),
    /// Receiver to sender: what is believed lost (P4.6).
    Nack(Nack),
    /// Receiver to sender: the receive has ended, and its buffer is no longer accessible (P4.7).
    ReceiveComplete {
        /// Number of the message.
        message: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Receiver to sender: what the path lost of the chunks of this queue pair (P4.8).
    Loss(LossCounts),
    /// Receiver to sender: what arrived through all queue pairs to the peer (P4.10).
    PeerFeedback(PeerFeedback),
    /// Receiver to sender: requests a message of exposed memory (P4.11).
    Read(ReadRequest),
    /// Sender to receiver: asks for credit (P4.12).
    CreditRequest(CreditRequest),
    /// Receiver to sender: the credit granted so far (P4.12).
    Credit(Credit),
}

/// The reliability scheme that repairs a message, with its parameters. Layers below the schemes do
/// not interpret the parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SchemeTag {
    /// 0 is no scheme (raw SDR); 1 to 127 are assigned in P5; 128 to 255 are for private use.
    pub id: u8,
    /// The scheme defines their meaning.
    pub params: [u8; 6],
}

impl SchemeTag {
    /// No scheme: the receiver watches the bitmap and closes the receive itself.
    pub const NONE: Self = Self {
        id: 0,
        params: [0; 6],
    };
}

/// Announces a message before its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Number of the message: messages of a queue pair count from 0 in the order of their posting.
    pub message: u64,
    /// Bytes of the message; `None` while a streaming send is still open.
    pub length: Option<u64>,
    /// Whether the packets carry fragments of a 32-bit user immediate.
    pub has_immediate: bool,
    /// The scheme that the receiver runs.
    pub scheme: SchemeTag,
    /// The critical chunks, if the scheme has any (P5.9.6).
    pub critical: CriticalChunks,
    /// Clearances that the sender holds: for messages `0..cleared`. This acknowledges
    /// [`ClearToSend`].
    pub cleared: u64,
    /// Why the sender ended the message before it was complete, if it did. It sends no more of the
    /// message.
    pub withdrawn: Option<Withdrawal>,
    /// Whether the message answers a [`ReadRequest`] (P3.13).
    pub answers_read: bool,
}

/// Why a sender withdraws a message (P3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The sender gave up the message, which fails.
    GivenUp,
    /// The sender's deadline expired, and the receiver accepts a partial message: the chunks that
    /// have arrived are kept.
    Expired,
    /// The sender does not answer a read, which fails.
    Refused(ReadRefusal),
}

/// Why an end does not answer a read (P3.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ReadRefusal {
    /// No region with this number is exposed on the queue pair.
    #[error("it exposes no such region on this queue pair")]
    UnknownRegion,
    /// The bytes do not lie within the region.
    #[error("the bytes do not lie within the region")]
    OutOfRange,
    /// The scheme is not known, cannot repair this message, or is one too many.
    #[error("it cannot send with the scheme of the read")]
    Scheme,
}

/// Requests a message: bytes of memory that the peer has exposed (P3.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Number of the message that answers the request: that of the receive which was posted for it.
    pub message: u64,
    /// Number of the region at the peer.
    pub region: u64,
    /// First byte of the region to send.
    pub offset: u64,
    /// Bytes to send.
    pub length: u64,
    /// Time from the departure of the request to the deadline of the read, in nanoseconds.
    /// `u64::MAX`: the read has no deadline. 0: the read is over, and only its message number
    /// matters.
    pub remaining_ns: u64,
    /// The scheme of the message.
    pub scheme: SchemeTag,
}

/// Asks the peer for credit (P4.12). Bytes are bytes on the wire, as in
/// [`PeerFeedback`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditRequest {
    /// The number of the sender's state of the peer. A state that it opens later has a higher number,
    /// and its sums start at zero.
    pub epoch: u64,
    /// Credit that the sender has used, or has let expire, since it opened this state.
    pub used_bytes: u64,
    /// Credit that it wants in total: the used credit, and what it has left to send. It is never
    /// less than `used_bytes`.
    pub wanted_bytes: u64,
}

/// Credit for the peer (P4.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// The epoch of the request.
    pub epoch: u64,
    /// All credit granted since the sender opened its state, in bytes on the wire. It is never more
    /// than the sender has wanted.
    pub granted_bytes: u64,
}

/// Lists the posted receives. Cumulative: it repeats the contents of earlier ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearToSend {
    /// Receives posted so far on this queue pair: messages `0..posted` have, or had, a buffer.
    pub posted: u64,
    /// Offers processed: this end knows the lengths of messages `0..offers`, or they no longer
    /// matter. This acknowledges [`Offer`].
    pub offers: u64,
    /// Message of the first entry of `clearances`. The others follow in order.
    pub first: u64,
    /// The destination of each message.
    pub clearances: Vec<Clearance>,
}

/// Where one message may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clearance {
    /// Generation of the slot, which selects the queue pairs to write through; below 64.
    pub generation: u8,
    /// Key of the memory.
    pub rkey: u32,
    /// Address of the message's first byte under that key.
    pub base: u64,
    /// Bytes that the buffer holds.
    pub length: u64,
    /// Where the message's parity may be written, if there is memory for it.
    pub parity: Option<Place>,
    /// The requirements for the message, and how it may end.
    pub terms: Terms,
}

/// What a receiver requires of a message and what it permits, stated before the offer arrives
/// (P3.12). By default it requires nothing and permits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The message has exactly the length of its buffer, and `immediate` says whether it carries a
    /// user immediate.
    pub exact_length: bool,
    /// Whether the message carries a user immediate. It is meaningful only with `exact_length`.
    pub immediate: bool,
    /// The scheme that the message must have.
    pub scheme: Option<SchemeTag>,
    /// Whether the message may end as partial at the deadline of its sender.
    pub accepts_partial: bool,
    /// Whether the message must answer a [`ReadRequest`]. If false, it must not answer one.
    pub answers_read: bool,
}

/// Memory that a peer may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Key of the memory.
    pub rkey: u32,
    /// Address of the first byte under that key.
    pub base: u64,
    /// Bytes.
    pub length: u64,
}

/// What has arrived of one message (paper section 4.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Number of the message.
    pub message: u64,
    /// Chunks `0..cumulative` have all arrived.
    pub cumulative: u32,
    /// One past the highest chunk of which a packet has arrived, 0 if none.
    pub seen: u32,
    /// First chunk that `bits` describes; a multiple of 8.
    pub window_start: u32,
    /// One bit per chunk from `window_start` on, least significant first. A set bit means that the
    /// chunk arrived.
    pub bits: Vec<u8>,
}

/// Chunks of one message that the receiver believes lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Number of the message.
    pub message: u64,
    /// Lost chunks, ascending, disjoint, none empty.
    pub lost: Vec<Range<u32>>,
}

/// What arrived from the peer, through all queue pairs (P4.10): the input of rate control. Counts are
/// sums since the receiver opened its state of the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerFeedback {
    /// The number of the receiver's state of the peer. A state that it opens later has a higher
    /// number, and its counts start at zero.
    pub epoch: u64,
    /// Message of the newest data packet, on the queue pair that this message travels on.
    pub message: MessageId,
    /// Whether that packet was late. Then it may belong to an older message in the same slot and
    /// generation.
    pub is_late: bool,
    /// Its number in the message, counted from 0.
    pub packet: u32,
    /// Time between its arrival and the departure of this message, in nanoseconds.
    pub hold_ns: u64,
    /// Data packets that arrived.
    pub received_packets: u64,
    /// Their bytes: whole IP packets, without padding.
    pub received_bytes: u64,
    /// Those that carried ECT(0), ECT(1) or CE (RFC 3168 section 5).
    pub ect_packets: u64,
    /// Those that carried CE.
    pub marked_packets: u64,
    /// Data packets from the peer that were dropped at the receiver because its sockets or NIC had no
    /// room (P5.5.5).
    pub dropped_packets: u64,
    /// Rate at which the receiver processes data packets, in bits per second, counted as
    /// `received_bytes`; 0 when idle.
    pub drain_bps: u64,
    /// Those of the packets that brought no new data. Older versions do not count them, and refuse a
    /// message in which they are not 0.
    pub stale: StaleCounts,
}

/// Data packets that brought no new data: late ones, copies and repeats (P4.10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaleCounts {
    /// All of them.
    pub packets: u64,
    /// Those that carried CE.
    pub marked_packets: u64,
}

/// Chunks that were lost in transit, and the bursts of losses. Values from a peer may be
/// inconsistent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Chunks for which the receiver could determine whether the first transmission arrived.
    pub judged_chunks: u64,
    /// Judged chunks whose first transmission was lost.
    pub lost_chunks: u64,
    /// Runs of lost chunks that follow one another on the wire.
    pub bursts: u64,
    /// Chunks of the longest run.
    pub longest_burst_chunks: u64,
}

/// How a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte arrived.
    Whole,
    /// The receiver closed it with chunks missing.
    Partial,
    /// It was given up.
    Failed,
}

/// An SDR message of a queue pair: a data message, or the message with the parity chunks of a data
/// message (P5.4). Data messages have the numbers of sends and receives, which count from 0.
///
/// ```
/// use farwrite_wire::control::MessageId;
///
/// let data = MessageId::new(7);
/// let parity = data.parity();
/// assert!(parity.is_parity() && !data.is_parity());
/// assert_eq!((parity.data(), data.data()), (7, 7));
/// assert_eq!(parity.parity(), parity);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u64);

/// Set in the id of a parity message. No queue pair ever sends 2^60 data messages.
const PARITY: u64 = 1 << 60;

impl MessageId {
    /// The data message with a number. Only a hostile peer sends a number of 2^60 or more, which
    /// gives the id of another message.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number & !PARITY)
    }

    /// The message with the parity of this one. For a parity message, this is the message itself.
    #[must_use]
    pub const fn parity(self) -> Self {
        Self(self.0 | PARITY)
    }

    /// Number of the data message: of this one, or of the one that this parity belongs to.
    #[must_use]
    pub const fn data(self) -> u64 {
        self.0 & !PARITY
    }

    /// The id in a peer feedback (P4.10).
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The id in a peer feedback. A hostile peer may send any value.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether this is a parity message.
    #[must_use]
    pub const fn is_parity(self) -> bool {
        self.0 & PARITY != 0
    }
}

impl From<u64> for MessageId {
    fn from(number: u64) -> Self {
        Self::new(number)
    }
}

/// A data message equals its number; parity equals no number.
impl PartialEq<u64> for MessageId {
    fn eq(&self, number: &u64) -> bool {
        !self.is_parity() && self.data() == *number
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_parity() {
            true => write!(f, "the parity of message {}", self.data()),
            false => write!(f, "message {}", self.data()),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_parity() { "parity " } else { "" };
        write!(f, "{kind}{}", self.data())
    }
}
