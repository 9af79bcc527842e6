//! The bodies of a control packet, as plain structs.

use alloc::vec::Vec;
use core::ops::Range;

/// One control message. A control packet carries one header and any number of these that fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Sender to receiver: a message is about to come (P4.3).
    Offer(Offer),
    /// Receiver to sender: buffers are posted (P4.4).
    ClearToSend(ClearToSend),
    /// Receiver to sender: what has arrived (P4.5).
    Ack(Ack),
    /// Receiver to sender: what is believed lost (P4.6).
    Nack(Nack),
    /// Receiver to sender: the receive is over, and its buffer is out of reach (P4.7).
    ReceiveComplete {
        /// Number of the message.
        message: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Receiver to sender: what the path lost of the chunks of this queue pair (P4.8).
    Loss(LossCounts),
    /// Receiver to sender: what arrived over the whole path (P4.10).
    PathFeedback(PathFeedback),
}

/// Which reliability scheme repairs a message, and its parameters, opaque below the schemes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SchemeTag {
    /// 0 is no scheme (raw SDR); 1 to 127 are assigned in P5; 128 to 255 are for private use.
    pub id: u8,
    /// Meaning given by the scheme.
    pub params: [u8; 6],
}

impl SchemeTag {
    /// No scheme: the receiver watches the bitmap, and closes the receive itself.
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
    /// The scheme that the receiver shall run.
    pub scheme: SchemeTag,
    /// Clearances that the sender holds: those of messages `0..cleared`. Answers [`ClearToSend`].
    pub cleared: u64,
    /// Why the sender ended the message before it was whole, if it did: nothing more of it comes.
    pub withdrawn: Option<Withdrawal>,
}

/// Why a sender withdraws a message (P3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// The sender gave the message up: it fails.
    GivenUp,
    /// The sender's deadline came, and the receiver accepts a part: what has arrived stands.
    Expired,
}

/// Says which receives are posted. Cumulative: it repeats what earlier ones said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClearToSend {
    /// Receives posted so far on this queue pair: messages `0..posted` have, or had, a buffer.
    pub posted: u64,
    /// Offers taken in: the lengths of messages `0..offers` are known here, or no longer matter.
    /// Answers [`Offer`].
    pub offers: u64,
    /// Message that the first entry of `clearances` is for; the others follow in order.
    pub first: u64,
    /// Where each message goes.
    pub clearances: Vec<Clearance>,
}

/// Where one message may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clearance {
    /// Generation of the slot, which picks the queue pairs to write through; below 64.
    pub generation: u8,
    /// Key of the memory.
    pub rkey: u32,
    /// Address of the message's first byte under that key.
    pub base: u64,
    /// Bytes that the buffer holds.
    pub length: u64,
    /// Where the message's parity may be written, if there is memory for it.
    pub parity: Option<Place>,
    /// What the message must be, and how it may end.
    pub terms: Terms,
}

/// What a receiver demands of a message and allows it, stated before the offer comes (P3.12). By
/// default it demands nothing and allows nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The message has exactly the bytes that its buffer holds, and `immediate` says whether it
    /// carries a user immediate.
    pub exact_length: bool,
    /// Whether the message carries a user immediate. It has a meaning only with `exact_length`.
    pub immediate: bool,
    /// The scheme that the message must have.
    pub scheme: Option<SchemeTag>,
    /// Whether the message may end as partial at its sender's deadline.
    pub accepts_partial: bool,
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
    /// One bit a chunk from `window_start` on, least significant first; set: arrived.
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

/// What the receiver knows of the whole path (P4.10): the feedback that rate control works with.
/// Counts are sums since the receiver opened the path, over all its queue pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFeedback {
    /// The receiver's number of the path. A path that it opens later has a higher one, and its
    /// counts begin again.
    pub path: u64,
    /// Message of the newest data packet, on the queue pair that this message travels on.
    pub message: u64,
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
    /// Data packets of the path that found no room at the receiver's sockets or NIC (P5.5.5).
    pub dropped_packets: u64,
    /// Rate at which the receiver took data packets in lately, in bits a second, counted as
    /// `received_bytes`; 0 when idle.
    pub drain_bps: u64,
}

/// Chunks that were lost on the way, and in what bursts. From a peer these are only numbers: they
/// may contradict one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Chunks of which the receiver could tell whether they arrived at their first sending.
    pub judged_chunks: u64,
    /// Those that did not.
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

/// Set in the number of an SDR message that carries the parity chunks of another (P5.4): messages
/// of a queue pair count from 0, and no queue pair lives to send so many.
const PARITY: u64 = 1 << 60;

/// Number of the SDR message with the parity chunks of data message `message`. That of a parity
/// message is itself.
///
/// ```
/// use farwrite_wire::control::{data_of, is_parity, parity_of};
///
/// let parity = parity_of(7);
/// assert!(is_parity(parity) && !is_parity(7));
/// assert_eq!((data_of(parity), data_of(7)), (7, 7));
/// ```
pub const fn parity_of(message: u64) -> u64 {
    message | PARITY
}

/// Number of the data message that a message belongs to: itself, or the one that its parity is of.
pub const fn data_of(message: u64) -> u64 {
    message & !PARITY
}

/// Whether the number is that of a parity message.
pub const fn is_parity(message: u64) -> bool {
    message & PARITY != 0
}
