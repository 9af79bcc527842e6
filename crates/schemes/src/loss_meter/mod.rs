//! What a path loses, told at the receiver from the bitmaps (P5.7).

mod front;
mod watched;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use farwrite_wire::control::LossCounts;

use crate::chunk_loss::ChunkLoss;
use crate::order::WireOrder;
use crate::scheme::{Arrivals, Message, Path};
use front::Front;
use watched::{Fate, Watched};

/// Watches the messages that a queue pair receives with one scheme.
///
/// Chunks are judged in the order in which the sender first puts them on the wire, each once. Call
/// [`LossMeter::look`] with every message that had arrivals before the scheme answers them, and
/// [`LossMeter::handle_timeout`] when it is due: a repair that arrives before its loss was judged
/// hides the loss. Each word of a bitmap is read a few times, or each chunk about twice
/// where they do not come in sequence.
#[derive(Debug, Default)]
pub struct LossMeter {
    messages: BTreeMap<u64, Watched>,
    /// The newest message of which a chunk was seen.
    newest: Option<u64>,
    front: Front,
    /// Where the front has been, to be judged up to there.
    passed: VecDeque<Passed>,
    tally: Tally,
}

/// The front was there, and everything before has been passed.
#[derive(Debug)]
struct Passed {
    message: u64,
    /// One past the last position that was passed.
    end: u32,
    /// When the front was at the first of the places that this stands for.
    since_ns: u64,
    /// When the reordering window since the last of them ends.
    due_ns: u64,
}

impl LossMeter {
    /// A message is about to come, whose chunks are sent in this order.
    pub fn begin(&mut self, message: &Message, order: Box<dyn WireOrder + Send>) {
        // Its turn is over if a newer one was seen.
        if self.newest.is_none_or(|newest| message.number > newest) {
            self.messages
                .entry(message.number)
                .or_insert_with(|| Watched::new(message, order));
        }
    }

    /// Chunks of the message, or of its parity, may have arrived.
    pub fn look(&mut self, path: &Path, message: u64, arrivals: &dyn Arrivals) {
        let before = self.newest;
        if before.is_some_and(|newest| message < newest) {
            return;
        }
        self.handle_timeout(path.now_ns, arrivals);
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
        if !self.front.moves(path, moved_by) {
            self.pass(path, number, front - 1);
        } else if before == Some(number) {
            self.skip(number, front);
        } else {
            self.front.restart(path.now_ns);
            self.skip(number, 0);
            self.pass(path, number, front - 1);
        }
    }

    /// A chunk of the message that had not arrived was computed from others, and reads as arrived
    /// from now on.
    pub fn handle_rebuilt(&mut self, message: u64, chunk: u32) {
        if let Some(watched) = self.messages.get_mut(&message) {
            watched.rebuilt(chunk);
        }
    }

    /// The message's buffer is about to be given up. What was passed of it is taken as it is,
    /// unless [`LossMeter::handle_late`] says otherwise within the reordering window; the rest will
    /// not be judged, unless all of it is there.
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

    /// A packet of a chunk came after the chunk was rebuilt, or after the message ended. If the chunk
    /// was not judged before, it was late and is not lost. `chunk` is the number of the SDR message,
    /// data or parity, and the chunk in it. With `is_whole`, the packet is all of the chunk, which
    /// counts as arrived. Otherwise the chunk is not judged.
    pub fn handle_late(&mut self, message: u64, chunk: (u64, u32), is_whole: bool) {
        if let Some(watched) = self.messages.get_mut(&message) {
            watched.handle_late(chunk, is_whole);
        }
    }

    /// Judges what was passed a reordering window ago.
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

    /// When [`LossMeter::handle_timeout`] wants to be called, in the clock of [`Path::now_ns`].
    pub fn next_timeout(&self) -> Option<u64> {
        self.passed.front().map(|passed| passed.due_ns)
    }

    /// What was lost so far. Chunks of messages that have ended are counted as they are, though
    /// packets of them that are late can still come: then fewer are lost than was said before.
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

    /// The front has gone beyond positions `0..end` of the message and all of older ones.
    fn pass(&mut self, path: &Path, message: u64, end: u32) {
        let now_ns = path.now_ns;
        let due_ns = now_ns.saturating_add(path.reordering_window_ns);
        // A few timers a window are enough.
        let grain_ns = path.reordering_window_ns / 8;
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

    /// Leaves unjudged what lies before a position and is not judged yet.
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
        watched.fates(positions, arrivals, |fate, run| {
            self.tally.add(fate, run);
        });
    }
}

/// The counts, and the run of lost chunks that may go on.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    counts: LossCounts,
    run: u64,
}

impl Tally {
    fn add(&mut self, fate: Fate, run: u32) {
        if run == 0 {
            return;
        }
        let chunks = u64::from(run);
        match fate {
            Fate::Arrived => {
                self.counts.judged_chunks += chunks;
                self.run = 0;
            }
            Fate::Lost => {
                self.counts.judged_chunks += chunks;
                self.counts.lost_chunks += chunks;
                self.counts.bursts += u64::from(self.run == 0);
                self.run += chunks;
                self.counts.longest_burst_chunks = self.counts.longest_burst_chunks.max(self.run);
            }
            Fate::Unknown => self.break_off(),
            Fate::Elsewhere => {}
        }
    }

    /// What follows is not the chunk after the last.
    fn break_off(&mut self) {
        self.run = 0;
    }
}
