//! Path loss, measured at the receiver from the bitmaps (P5.7).

mod highest_position;
mod metered_message;
mod overtaken;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use farwrite_wire::control::LossCounts;

use crate::chunk_loss::ChunkLoss;
use crate::order::WireOrder;
use crate::scheme::{Arrivals, Message, MessageId, PeerView};
use highest_position::HighestPosition;
use metered_message::{FirstTransmission, MeteredMessage};
pub use overtaken::LateChunk;
use overtaken::Overtaken;

/// Measures loss in the messages that a queue pair receives with one scheme.
///
/// Chunks are judged once each, in the order in which the sender first puts them on the wire. Call
/// [`LossMeter::look`] with every message that had arrivals, before the scheme handles them. Call
/// [`LossMeter::handle_timeout`] when it is due: a repair that arrives before its loss was judged
/// hides the loss. Each word of a bitmap is read a few times. Chunks that do not arrive in sequence
/// are read about twice each.
#[derive(Debug, Default)]
pub struct LossMeter {
    messages: BTreeMap<u64, MeteredMessage>,
    /// The newest message of which a chunk has arrived.
    newest: Option<u64>,
    front: HighestPosition,
    /// Earlier places of the front. Positions up to each place are to be judged.
    passed: VecDeque<Passed>,
    overtaken: Overtaken,
    tally: Tally,
}

/// A place where the front was. The sender has passed everything before it.
#[derive(Debug)]
struct Passed {
    message: u64,
    /// One past the last position that was passed.
    end: u32,
    /// When the front reached the first of the places that this entry represents.
    since_ns: u64,
    /// When the reordering window after the last of these places ends.
    due_ns: u64,
}

impl LossMeter {
    /// Begins a message, before its chunks arrive. They are sent in this order.
    pub fn begin(&mut self, message: &Message, order: Box<dyn WireOrder + Send>) {
        // If a chunk of a newer message has arrived, this message's turn has ended.
        if self.newest.is_none_or(|newest| message.number > newest) {
            self.messages
                .entry(message.number)
                .or_insert_with(|| MeteredMessage::new(message, order));
        }
    }

    /// Checks for new chunks of the message or of its parity. `repair_ns` is the shortest time in
    /// which a repair can come.
    pub fn look(&mut self, view: &PeerView, repair_ns: u64, message: u64, arrivals: &dyn Arrivals) {
        let late = self
            .overtaken
            .look(view.now_ns, repair_ns, message, arrivals);
        self.tally.take_back(late);
        let before = self.newest;
        if before.is_some_and(|newest| message < newest) {
            return;
        }
        self.handle_timeout(view.now_ns, arrivals);
        let mut beyond = 0;
        let mut reached = None;
        for (&number, watched) in self.messages.range_mut(before.unwrap_or(0)..=message) {
            let rest = u64::from(watched.length() - watched.front());
            if let Some(by) = watched.advance(arrivals) {
                reached = Some((number, beyond + u64::from(by), watched.front()));
            }
            beyond += rest;
        }
        let Some((number, moved_by, front)) = reached else {
            return;
        };
        self.newest = Some(number);
        if let Some(before) = before {
            self.watch(view, before..=number, arrivals);
        }
        if !self.front.moves(view, moved_by) {
            self.pass(view, number, front - 1);
        } else if before == Some(number) {
            self.skip(number, front);
        } else {
            self.front.restart(view.now_ns);
            self.skip(number, 0);
            self.pass(view, number, front - 1);
        }
    }

    /// Records that a missing chunk of the message was computed from others. It reads as arrived
    /// from now on.
    pub fn handle_rebuilt(&mut self, message: u64, chunk: u32) {
        if let Some(watched) = self.messages.get_mut(&message) {
            watched.rebuilt(chunk);
        }
        self.overtaken.rebuilt((message.into(), chunk));
    }

    /// Ends the message, because its buffer is about to be released. Passed chunks are judged by
    /// their current state, unless [`LossMeter::handle_late`] reports otherwise within the
    /// reordering window. The other chunks are not judged, unless all of the message has arrived.
    pub fn end(&mut self, message: u64, arrivals: &dyn Arrivals) {
        let Some(watched) = self.messages.get_mut(&message) else {
            return;
        };
        if watched.front() == 0 {
            self.messages.remove(&message);
            return;
        }
        watched.close(arrivals, self.newest != Some(message));
    }

    /// Handles a packet of a chunk that arrived after the chunk was rebuilt, or after the message
    /// ended. If the chunk was not judged before, it was late and is not lost. `chunk` is its
    /// message, data or parity, and its number there. With `is_whole`, the packet is the whole
    /// chunk, and the chunk counts as arrived. Otherwise the chunk is not judged.
    pub fn handle_late(&mut self, now_ns: u64, chunk: (MessageId, u32), is_whole: bool) {
        // A copy of one of several packets does not show that the chunk has arrived.
        if is_whole {
            let late = self.overtaken.handle_late(now_ns, chunk);
            self.tally.take_back(late);
        }
        if let Some(watched) = self.messages.get_mut(&chunk.0.data()) {
            watched.handle_late(chunk, is_whole);
        }
    }

    /// Judges the chunks that were passed a reordering window ago.
    pub fn handle_timeout(&mut self, now_ns: u64, arrivals: &dyn Arrivals) {
        while let Some(passed) = self.passed.front()
            && passed.due_ns <= now_ns
        {
            let (message, end) = (passed.message, passed.end);
            self.passed.pop_front();
            while let Some((&number, _)) = self.messages.first_key_value()
                && number < message
            {
                self.judge_rest(number, arrivals);
            }
            self.judge(message, end, arrivals);
        }
    }

    /// When to call [`LossMeter::handle_timeout`], in the clock of [`PeerView::now_ns`].
    pub fn next_timeout(&self) -> Option<u64> {
        self.passed.front().map(|passed| passed.due_ns)
    }

    /// The losses so far. Chunks of ended messages are counted by their current state, although
    /// late packets of them can still arrive. Then the number of losses falls.
    pub fn loss(&self) -> ChunkLoss {
        let mut tally = self.tally;
        for (&number, watched) in &self.messages {
            if !watched.is_closed() {
                break;
            }
            let is_newest = self.newest == Some(number);
            let end = match is_newest {
                true => watched.front() - 1,
                false => watched.length(),
            };
            watched.fates_at_end(end, |fate, run| tally.add(fate, run));
            if is_newest {
                break;
            }
        }
        ChunkLoss::from_counts(tally.counts)
    }

    /// Records that chunks `..end` of the message, or some of them, are requested from the sender.
    pub fn handle_request(&mut self, view: &PeerView, message: u64, end: u32) {
        let watched = self.messages.get(&message);
        if watched.is_some_and(|watched| !watched.has_passed(end)) {
            self.front.expect_repeats(view);
        }
    }

    /// Returns the chunks that arrived after later ones since the last call, or the first of them if
    /// there are many.
    pub fn take_late(&mut self) -> Vec<LateChunk> {
        self.overtaken.take_late()
    }

    /// Watches the missing chunks that the front has just passed, unless repeats may have moved it. It
    /// was in the first of these messages, and is in the last.
    fn watch(&mut self, view: &PeerView, messages: RangeInclusive<u64>, arrivals: &dyn Arrivals) {
        let (first, newest) = (*messages.start(), *messages.end());
        let mut before = self.messages.range(first..newest);
        let is_unfinished = first == newest || before.any(|(_, watched)| !watched.is_closed());
        let is_clear = self.front.is_clear(view, is_unfinished);
        for (&number, watched) in self.messages.range_mut(messages) {
            let passed = watched.take_to_watch(number == newest);
            let room = self.overtaken.room();
            if is_clear && room > 0 {
                watched.missing(passed, arrivals, room, |chunk, position| {
                    self.overtaken.watch(view.now_ns, chunk, position);
                });
            }
        }
    }

    /// The front has passed positions `0..end` of the message and all positions of older messages.
    fn pass(&mut self, view: &PeerView, message: u64, end: u32) {
        let now_ns = view.now_ns;
        let due_ns = now_ns.saturating_add(view.reordering_window_ns);
        // A few timers per window are enough.
        let grain_ns = view.reordering_window_ns / 8;
        match self.passed.back_mut() {
            Some(last) if now_ns.saturating_sub(last.since_ns) < grain_ns => {
                (last.message, last.end, last.due_ns) = (message, end, due_ns);
            }
            _ => self.passed.push_back(Passed {
                message,
                end,
                since_ns: now_ns,
                due_ns,
            }),
        }
    }

    /// Skips all unjudged positions before this one. They are never judged.
    fn skip(&mut self, message: u64, position: u32) {
        self.passed.clear();
        self.messages = self.messages.split_off(&message);
        if let Some(watched) = self.messages.get_mut(&message) {
            watched.take_to_judge(position);
        }
        self.tally.break_off();
    }

    fn judge_rest(&mut self, message: u64, arrivals: &dyn Arrivals) {
        if let Some(watched) = self.messages.get(&message) {
            let length = watched.length();
            self.judge(message, length, arrivals);
            self.messages.remove(&message);
        }
    }

    fn judge(&mut self, message: u64, end: u32, arrivals: &dyn Arrivals) {
        let Some(watched) = self.messages.get_mut(&message) else {
            return;
        };
        let positions = watched.take_to_judge(end);
        self.overtaken.judged(message, &positions);
        watched.fates(positions, arrivals, |fate, run| {
            self.tally.add(fate, run);
        });
    }
}

/// The counts, and the run of lost chunks that may still grow.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    counts: LossCounts,
    run: u64,
}

impl Tally {
    fn add(&mut self, fate: FirstTransmission, run: u32) {
        if run == 0 {
            return;
        }
        let chunks = u64::from(run);
        match fate {
            FirstTransmission::Arrived => {
                self.counts.judged_chunks += chunks;
                self.run = 0;
            }
            FirstTransmission::Lost => {
                self.counts.judged_chunks += chunks;
                self.counts.lost_chunks += chunks;
                self.counts.bursts += u64::from(self.run == 0);
                self.run += chunks;
                self.counts.longest_burst_chunks = self.counts.longest_burst_chunks.max(self.run);
            }
            FirstTransmission::Unknown => self.break_off(),
            FirstTransmission::Elsewhere => {}
        }
    }

    /// Chunks that counted as lost have arrived. Each of them counts as a burst of its own.
    fn take_back(&mut self, chunks: u64) {
        let counts = &mut self.counts;
        counts.lost_chunks = counts.lost_chunks.saturating_sub(chunks);
        counts.bursts = counts.bursts.saturating_sub(chunks);
    }

    /// Ends the run, because the next chunk does not follow the last one.
    fn break_off(&mut self) {
        self.run = 0;
    }
}
