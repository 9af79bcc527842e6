//! The interface that every scheme keeps.
//!
//! Both halves follow one order: `handle_*` what happened, then `poll_*` until each answers `None`.
//! The polls may come at any time and in any number; a scheme pushes nothing. Of what happened at
//! once, arrivals and reports come before `handle_timeout`: a report that lies unread must not make
//! a timeout expire. After `handle_timeout` and the polls, `next_timeout` lies in the future.
//!
//! Message numbers and what they mean are the endpoint's; a half ignores calls about messages that
//! it does not have charge of, so that late news need no filter.
//!
//! A scheme that codes has a second SDR message beside the data one, for parity: the message numbered
//! [`parity_of`] the data message's number, as long as [`Scheme::layout`] says. [`Chunks`] and
//! [`Arrivals`] name it by that number; reports, jobs and outcomes are about the data message. The
//! arithmetic is the endpoint's: schemes ask for it by [`Job`]s.

use core::ops::Range;

use alloc::boxed::Box;
pub use farwrite_codes::Layout;
pub use farwrite_wire::control::{Ack, Nack, Outcome, SchemeTag, data_of, is_parity, parity_of};
pub use farwrite_wire::timing::Timing;

use crate::order::{InSequence, WireOrder};

/// What is known of the path and the time, handed to every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Now, in nanoseconds of the endpoint's clock; never runs backward.
    pub now_ns: u64,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// A chunk missing for less than this while later ones arrive may be merely late.
    pub reordering_window_ns: u64,
    /// The least and the most that is waited, whatever the round trip.
    pub timing: Timing,
}

/// A message that a scheme has charge of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number on the queue pair.
    pub number: u64,
    /// Its bytes; zero is allowed.
    pub bytes: u64,
    /// Its chunks, at least 1: the last may be short, or carry no bytes but an immediate.
    pub chunks: u32,
    /// Bytes of a chunk that is not short, at least 1.
    pub chunk_bytes: u64,
}

/// A run of chunks of one message, never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Number of the message.
    pub message: u64,
    /// Which chunks.
    pub range: Range<u32>,
}

/// What has arrived of the messages that a queue pair receives, as a receiving half may look at it.
/// A message that has no buffer reads as one of which nothing has arrived.
///
/// Receive workers set bits at any time, so a second reading may show more than the first. Nothing
/// that has arrived goes away while its message is open.
pub trait Arrivals {
    /// 64 chunks from `64 * word` on, the first in the least significant bit; set: arrived whole.
    /// Chunks past the end read as not arrived.
    fn word(&self, message: u64, word: u32) -> u64;
    /// How many chunks have arrived whole.
    fn count(&self, message: u64) -> u32;
    /// One past the highest chunk of which a packet has arrived, 0 if none.
    fn seen(&self, message: u64) -> u32;
    /// Whether the message has no user immediate, or all fragments of it are there. Chunks that were
    /// rebuilt brought none, so a message with all its bytes may lack it; such a message must not be
    /// closed.
    fn immediate_is_whole(&self, _message: u64) -> bool {
        true
    }
}

/// Arithmetic on one group of a message, as [`Scheme::layout`] cuts it, for the endpoint to do.
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
    /// Make the group's missing data chunks from what is there; from then on they read as arrived.
    Rebuild,
}

/// What a receiving half wants the sender told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// What has arrived.
    Ack(Ack),
    /// What is believed lost.
    Nack(Nack),
}

/// The sending half of a scheme: sees all messages that a queue pair sends with it.
pub trait Sender {
    /// The message ends here at this time at the latest, in the clock of [`Path::now_ns`]. The
    /// endpoint ends it then. Comes before [`Sender::start`], or never.
    fn handle_deadline(&mut self, _message: u64, _deadline_ns: u64) {}
    /// Takes charge of a message: from now on the receiver's buffer is known to be there. Without
    /// effect if it has charge of it already.
    fn start(&mut self, path: &Path, message: &Message);
    /// The receiver told something. Numbers and ranges come from the peer: anything may be in them.
    fn handle_report(&mut self, path: &Path, report: &Report);
    /// Chunks handed out by [`Sender::poll_transmit`] have left this end: their timeout begins.
    /// All that is handed out must be told here, in the same order, or the message must end: until
    /// then a scheme takes it to be still in the endpoint's hands.
    fn handle_departed(&mut self, path: &Path, chunks: &Chunks);
    /// The receiver has room for the parity of a data message: its parity chunks may be handed out.
    /// Comes at or after [`Sender::start`], or never.
    fn handle_parity_clear(&mut self, _path: &Path, _message: u64) {}
    /// A job from [`Sender::poll_job`] is done.
    fn handle_job(&mut self, _path: &Path, _job: &Job) {}
    /// The next group to encode, ahead of when its parity is due. The endpoint does it when it has
    /// time, or nothing else can be sent, in any order.
    fn poll_job(&mut self) -> Option<Job> {
        None
    }
    /// The receiver closed the message: nothing of it needs sending any more. The outcome comes back
    /// by [`Sender::poll_outcome`].
    fn handle_closed(&mut self, path: &Path, message: u64, outcome: Outcome);
    /// The local user gives the message up. No outcome follows.
    fn abandon(&mut self, message: u64);
    /// Time has reached [`Sender::next_timeout`].
    fn handle_timeout(&mut self, path: &Path);
    /// The next chunks to send, at most `max_chunks`, which is at least 1.
    fn poll_transmit(&mut self, path: &Path, max_chunks: u32) -> Option<Chunks>;
    /// A message that is over at this end, and how.
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)>;
    /// When [`Sender::handle_timeout`] wants to be called, in the clock of [`Path::now_ns`].
    fn next_timeout(&self) -> Option<u64>;
    /// What has been sent so far.
    fn counters(&self) -> SenderCounters;
}

/// What a sending half has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounters {
    /// Chunks handed out, repeats included.
    pub sent_chunks: u64,
    /// Chunks handed out again.
    pub retransmitted_chunks: u64,
    /// Times that a retransmission timer expired.
    pub timeouts: u64,
}

/// The receiving half of a scheme: sees all messages that a queue pair receives with it.
pub trait Receiver {
    /// The message ends here at this time at the latest, in the clock of [`Path::now_ns`]. The
    /// endpoint ends it then. Comes before [`Receiver::start`], or never.
    fn handle_deadline(&mut self, _message: u64, _deadline_ns: u64) {}
    /// A message was started by its sender, which an offer or a packet shows, and its buffer is
    /// there; chunks may have arrived before, and the next [`Receiver::poll_report`] looks for
    /// them. Without effect if it has charge of it already.
    fn start(&mut self, path: &Path, message: &Message);
    /// Packets of the data or parity message have arrived since the last call, duplicates included.
    /// Duplicates of a message that is over are for the endpoint to answer (P4.7).
    fn handle_arrivals(&mut self, path: &Path, message: u64, arrivals: &dyn Arrivals);
    /// A job from [`Receiver::poll_job`] is done: what it made reads as arrived, unless it failed.
    fn handle_job(&mut self, _path: &Path, _job: &Job, _arrivals: &dyn Arrivals) {}
    /// The next group to rebuild. The endpoint does it at once.
    fn poll_job(&mut self, _arrivals: &dyn Arrivals) -> Option<Job> {
        None
    }
    /// The sender of a bounded message is done with it: nothing more of it leaves. What has left may
    /// still be under way. Only a scheme that [is bounded](Scheme::is_bounded) is asked.
    fn handle_sender_done(&mut self, _path: &Path, _message: u64) {}
    /// The receive was closed by its user, early or not. No outcome follows.
    fn abandon(&mut self, message: u64);
    /// Time has reached [`Receiver::next_timeout`].
    fn handle_timeout(&mut self, path: &Path, arrivals: &dyn Arrivals);
    /// What to tell the sender next. A report holds at most `max_bytes` of bits or ranges (8 bytes
    /// a range); `max_bytes` is at least 64.
    fn poll_report(
        &mut self,
        path: &Path,
        arrivals: &dyn Arrivals,
        max_bytes: usize,
    ) -> Option<Report>;
    /// A message that is over at this end, and how: its final report has been handed out.
    fn poll_outcome(&mut self) -> Option<(u64, Outcome)>;
    /// When [`Receiver::handle_timeout`] wants to be called, in the clock of [`Path::now_ns`].
    fn next_timeout(&self) -> Option<u64>;
}

/// A scheme: makes both halves for a queue pair.
pub trait Scheme {
    /// Its name and how it is parametrised, as [`SchemeTag`] carries it.
    fn tag(&self) -> SchemeTag;
    /// A sending half.
    fn sender(&self) -> Box<dyn Sender + Send>;
    /// A receiving half.
    fn receiver(&self) -> Box<dyn Receiver + Send>;
    /// How a message is cut into groups; `None`: it has no parity message. Both ends compute the
    /// length of the parity message from it, [`Layout::parity_bytes`].
    fn layout(&self, _message: &Message) -> Option<Layout> {
        None
    }
    /// Whether a message may end as partial at both ends, whatever its receive was posted for
    /// (P5.9). The messages of such a scheme begin in the order of their numbers.
    fn is_bounded(&self) -> bool {
        false
    }
    /// In which order the chunks of a message first go on the wire.
    fn order(&self, message: &Message) -> Box<dyn WireOrder + Send> {
        Box::new(InSequence::of(message))
    }
}
