//! The interface that every scheme keeps.
//!
//! Both halves follow one order: `handle_*` what happened, then `poll_*` until each answers `None`.
//! The polls may come at any time and in any number; a scheme pushes nothing. Of what happened at
//! once, arrivals and reports come before `handle_timeout`: a report that lies unread must not make
//! a timeout expire. After `handle_timeout` and the polls, `next_timeout` lies in the future.
//!
//! Message numbers and what they mean are the endpoint's; a half ignores calls about messages that
//! it does not have charge of, so that late news need no filter.

use core::ops::Range;

use alloc::boxed::Box;
pub use farwrite_wire::control::{Ack, Nack, Outcome, SchemeTag};

/// What is known of the path and the time, handed to every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Now, in nanoseconds of the endpoint's clock; never runs backward.
    pub now_ns: u64,
    /// Smoothed round-trip time.
    pub rtt_ns: u64,
    /// A chunk missing for less than this while later ones arrive may be merely late.
    pub reordering_window_ns: u64,
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
pub trait Arrivals {
    /// 64 chunks from `64 * word` on, the first in the least significant bit; set: arrived whole.
    /// Chunks past the end read as not arrived.
    fn word(&self, message: u64, word: u32) -> u64;
    /// How many chunks have arrived whole.
    fn count(&self, message: u64) -> u32;
    /// One past the highest chunk of which a packet has arrived, 0 if none.
    fn seen(&self, message: u64) -> u32;
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
    /// Takes charge of a message: from now on the receiver's buffer is known to be there. Without
    /// effect if it has charge of it already.
    fn start(&mut self, path: &Path, message: &Message);
    /// The receiver told something. Numbers and ranges come from the peer: anything may be in them.
    fn handle_report(&mut self, path: &Path, report: &Report);
    /// Chunks handed out by [`Sender::poll_transmit`] have left this end: their timeout begins.
    /// All that is handed out must be told here, in the same order, or the message must end: until
    /// then a scheme takes it to be still in the endpoint's hands.
    fn handle_departed(&mut self, path: &Path, chunks: &Chunks);
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
    /// A message was offered, and its buffer is there; chunks may have arrived before, and the next
    /// [`Receiver::poll_report`] looks for them. Without effect if it has charge of it already.
    fn start(&mut self, path: &Path, message: &Message);
    /// Packets of the message have arrived since the last call, duplicates included. Duplicates of a
    /// message that is over are for the endpoint to answer (P4.7).
    fn handle_arrivals(&mut self, path: &Path, message: u64, arrivals: &dyn Arrivals);
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
}
