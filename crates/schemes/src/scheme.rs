//! The interface that every scheme implements.
//!
//! Both halves are called in one order: first `handle_*` for each event, then `poll_*` until each
//! returns `None`. The endpoint may poll at any time and any number of times. A scheme never calls
//! the endpoint. If several events happen at once, arrivals and reports come before
//! `handle_timeout`, so that an unread report does not let a timeout expire. After `handle_timeout`
//! and the polls, `next_timeout` lies in the future.
//!
//! The endpoint assigns message numbers. A half ignores calls about messages that it does not
//! manage, so the endpoint need not hold back late reports.
//!
//! A scheme that codes has a second SDR message beside the data message, for parity.
//! [`Scheme::layout`] determines its length. [`Chunks`] and [`Arrivals`] name either message by its
//! [`MessageId`]. Reports, jobs and outcomes are about the data message, and name it by its number.
//! The endpoint does the arithmetic: schemes request it with [`Job`]s.

use core::ops::Range;

use alloc::boxed::Box;
pub use farwrite_codes::Layout;
pub use farwrite_wire::control::{Ack, CriticalChunks, MessageId, Nack, Outcome, SchemeTag};
pub use farwrite_wire::timing::Timing;

use crate::order::{InSequence, WireOrder};

/// What a scheme sees of the peer, and the current time. Every call gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Current time, in nanoseconds of the endpoint's clock. It never runs backward.
    pub now_ns: u64,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// A chunk that has been missing for less than this time while later ones arrive may be merely
    /// late. For sending halves, this is an eighth of the round trip unless configured. For receiving
    /// halves, it follows what the path shows (P5.0.11).
    pub reordering_window_ns: u64,
    /// The shortest and longest waits, for any round trip.
    pub timing: Timing,
}

/// A message that a scheme manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number on the queue pair.
    pub number: u64,
    /// Its bytes; zero is allowed.
    pub bytes: u64,
    /// Number of chunks, at least 1. The last chunk may be short, or carry only an immediate.
    pub chunks: u32,
    /// Bytes of a chunk that is not short, at least 1.
    pub chunk_bytes: u64,
    /// The critical chunks. Only schemes with [`Scheme::critical`] look at them.
    pub critical: CriticalChunks,
}

/// What a scheme does for the critical ranges of a message (P5.9.6, P5.9.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Critical {
    /// They leave before the rest of the message.
    First,
    /// They leave before the rest, and are repeated until they have arrived. A message that ends as
    /// partial has them.
    Exact,
}

/// A run of chunks of one message, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// The data or parity message.
    pub message: MessageId,
    /// Which chunks.
    pub range: Range<u32>,
}

/// The chunks that have arrived of a queue pair's messages, for a receiving half to read. A message
/// without a buffer reads as one of which nothing has arrived.
///
/// Receive workers set bits at any time, so a second read may show more than the first. While a
/// message is open, its bits are never cleared.
pub trait Arrivals {
    /// 64 chunk bits from chunk `64 * word` on. The first chunk is the least significant bit. A set
    /// bit means that the chunk has arrived completely. Chunks past the end read as not arrived.
    fn word(&self, message: MessageId, word: u32) -> u64;
    /// Number of chunks that have arrived completely.
    fn count(&self, message: MessageId) -> u32;
    /// One past the highest chunk of which a packet has arrived, or 0 if no packet has.
    fn seen(&self, message: MessageId) -> u32;
    /// Returns whether the message has no user immediate, or all fragments of it have arrived. A
    /// rebuilt chunk brings no fragment, so a message can have all its bytes and lack its
    /// immediate. A scheme must not close such a message.
    fn immediate_is_whole(&self, _message: MessageId) -> bool {
        true
    }
}

/// Arithmetic on one group of a message, for the endpoint to do. [`Scheme::layout`] defines the
/// groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the data message.
    pub message: u64,
    /// Which group.
    pub group: u32,
    /// What to do.
    pub work: Work,
}

/// What a [`Job`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Make the group's parity chunks from its data.
    Encode,
    /// Compute the group's missing data chunks from the chunks that are present. From then on they
    /// read as arrived.
    Rebuild,
}

/// What a receiving half reports to the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// What has arrived.
    Ack(Ack),
    /// What is believed lost.
    Nack(Nack),
}

/// The sending half of a scheme. It manages all messages that a queue pair sends with the scheme.
pub trait Sender {
    /// Sets a message's deadline, in the clock of [`PeerView::now_ns`]. The endpoint ends the
    /// message at that time at the latest. Called before [`Sender::start`], or never.
    fn handle_deadline(&mut self, _message: u64, _deadline_ns: u64) {}
    /// Starts to manage a message. From now on the receiver's buffer is known to be ready. Has no
    /// effect if the half already manages the message.
    fn start(&mut self, view: &PeerView, message: &Message);
    /// Handles a report of the receiver. Its numbers and ranges come from the peer, so they may
    /// have any value.
    fn handle_report(&mut self, view: &PeerView, report: &Report);
    /// The receiver has reported on a message that has ended here, or has ended a message. This counts
    /// as a sign that the peer is within reach (P5.0.9).
    fn handle_contact(&mut self) {}
    /// Chunks handed out by [`Sender::poll_transmit`] have left this end: their timeout begins. The
    /// endpoint reports all chunks that were handed out, in the same order, unless the message
    /// ends. Until then a scheme assumes that the endpoint still has the chunks.
    fn handle_departed(&mut self, view: &PeerView, chunks: &Chunks);
    /// The receiver has room for the parity of a data message: its parity chunks may be handed out.
    /// Called at or after [`Sender::start`], or never.
    fn handle_parity_clear(&mut self, _view: &PeerView, _message: u64) {}
    /// A job from [`Sender::poll_job`] is done.
    fn handle_job(&mut self, _view: &PeerView, _job: &Job) {}
    /// The next group to encode, before its parity must be sent. The endpoint encodes groups in any
    /// order, when it has time or has nothing else to send.
    fn poll_job(&mut self) -> Option<Job> {
        None
    }
    /// The receiver closed the message: no more of it needs to be sent. [`Sender::poll_outcome`]
    /// returns the outcome.
    fn handle_closed(&mut self, view: &PeerView, message: u64, outcome: Outcome);
    /// Returns whether a message may end as partial at its deadline. Called only if the scheme
    /// [is bounded](Scheme::is_bounded).
    fn may_end_partial(&self, _message: u64) -> bool {
        true
    }
    /// The local user gives up the message. No outcome follows.
    fn abandon(&mut self, message: u64);
    /// Time has reached [`Sender::next_timeout`].
    fn handle_timeout(&mut self, view: &PeerView);
    /// The next chunks to send, at most `max_chunks`, which is at least 1.
    fn poll_transmit(&mut self, view: &PeerView, max_chunks: u32) -> Option<Chunks>;
    /// The next message that has ended at this end, and its outcome.
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)>;
    /// When to call [`Sender::handle_timeout`], in the clock of [`PeerView::now_ns`].
    fn next_timeout(&self) -> Option<u64>;
    /// What has been sent so far.
    fn counters(&self) -> SenderCounters;
}

/// Counters of a sending half since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Chunks handed out, repeats included.
    pub sent_chunks: u64,
    /// Chunks handed out again.
    pub retransmitted_chunks: u64,
    /// Times that a retransmission timer expired.
    pub timeouts: u64,
}

/// The receiving half of a scheme. It manages all messages that a queue pair receives with the
/// scheme.
pub trait Receiver {
    /// Sets a message's deadline, in the clock of [`PeerView::now_ns`]. The endpoint ends the
    /// message at that time at the latest. Called before [`Receiver::start`], or never.
    fn handle_deadline(&mut self, _message: u64, _deadline_ns: u64) {}
    /// The sender has started a message, as an offer or a packet shows, and its buffer is ready.
    /// Chunks may have arrived before; the next [`Receiver::poll_report`] looks for them. Has no
    /// effect if the half already manages the message. `is_cleared`: the sender is known to hold the
    /// clearance (P4.4), so its packets follow the offer at once.
    fn start(&mut self, view: &PeerView, message: &Message, is_cleared: bool);
    /// Packets of the data or parity message have arrived since the last call, duplicates included.
    /// The endpoint itself answers duplicates of a message that has ended (P4.7).
    fn handle_arrivals(&mut self, view: &PeerView, message: MessageId, arrivals: &dyn Arrivals);
    /// A job from [`Receiver::poll_job`] is done. Its chunks read as arrived, unless it failed.
    fn handle_job(&mut self, _view: &PeerView, _job: &Job, _arrivals: &dyn Arrivals) {}
    /// The next group to rebuild. The endpoint does it at once.
    fn poll_job(&mut self, _arrivals: &dyn Arrivals) -> Option<Job> {
        None
    }
    /// The sender of a bounded message has finished with it: nothing more of it leaves. Packets may
    /// still be in flight. Called only if the scheme [is bounded](Scheme::is_bounded).
    fn handle_sender_done(&mut self, _view: &PeerView, _message: u64) {}
    /// Returns whether a message may end as partial at its deadline, with what has arrived.
    fn may_end_partial(&self, _message: u64, _arrivals: &dyn Arrivals) -> bool {
        true
    }
    /// The receive was closed by its user, early or not. No outcome follows.
    fn abandon(&mut self, message: u64);
    /// Time has reached [`Receiver::next_timeout`].
    fn handle_timeout(&mut self, view: &PeerView, arrivals: &dyn Arrivals);
    /// The next report to the sender. A report holds at most `max_bytes` of bits or ranges (8 bytes
    /// a range); `max_bytes` is at least 64.
    fn poll_report(
        &mut self,
        view: &PeerView,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report>;
    /// The next message that has ended at this end, and its outcome. Its final report has been
    /// handed out.
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)>;
    /// When to call [`Receiver::handle_timeout`], in the clock of [`PeerView::now_ns`].
    fn next_timeout(&self) -> Option<u64>;
}

/// A scheme creates both halves for a queue pair.
pub trait Scheme {
    /// The scheme's name and parameters, as [`SchemeTag`] carries them.
    fn tag(&self) -> SchemeTag;
    /// Creates a sending half.
    fn sender(&self) -> Box<dyn Sender + Send>;
    /// Creates a receiving half.
    fn receiver(&self) -> Box<dyn Receiver + Send>;
    /// How a message is divided into groups. `None` if it has no parity message. Both ends compute
    /// the length of the parity message from it with [`Layout::parity_bytes`].
    fn layout(&self, _message: &Message) -> Option<Layout> {
        None
    }
    /// Returns whether a message may end as partial at both ends, whatever the terms of its receive
    /// are (P5.9). The messages of such a scheme begin in the order of their numbers.
    fn is_bounded(&self) -> bool {
        false
    }
    /// What the scheme does for critical ranges. `None` if its messages have none. If they have, the
    /// receiving half starts with the offer, which names them.
    fn critical(&self) -> Option<Critical> {
        None
    }
    /// The order in which the chunks of a message are first put on the wire.
    fn order(&self, message: &Message) -> Box<dyn WireOrder + Send> {
        Box::new(InSequence::of(message))
    }
}
