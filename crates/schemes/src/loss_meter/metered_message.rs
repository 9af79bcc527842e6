//! One message as the loss meter sees it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use crate::arrived::{Missing, cumulative};
use crate::chunk_set::words_of;
use crate::order::WireOrder;
use crate::scheme::{Arrivals, Message, MessageId};

/// Number of positions after the last one seen in which one look searches for more. The minimum
/// applies at first, and the maximum when earlier looks found nothing.
const MIN_REACH: u32 = 16;
const MAX_REACH: u32 = 1024;

/// The result of a chunk's first transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstTransmission {
    Arrived,
    Lost,
    Unknown,
    /// The chunk may have been sent later than in its turn: its neighbours arrived one after the
    /// other.
    Elsewhere,
}

/// A message, and its chunks that were seen.
pub(super) struct MeteredMessage {
    number: u64,
    order: Box<dyn WireOrder + Send>,
    length: u32,
    /// Positions below this one were judged, or never will be.
    judged: u32,
    /// Missing chunks at positions below this one are watched, or never will be.
    watched: u32,
    /// One past the highest position whose chunk has arrived, as far as the search has gone.
    front: u32,
    /// Where the search for a higher position continues.
    searched: u32,
    reach: u32,
    /// Chunks that were computed, and where the front was at that time.
    rebuilt: BTreeMap<u32, u32>,
    end: Option<End>,
}

/// What is known of a message that has ended.
struct End {
    /// One past the last position that can be judged.
    limit: u32,
    /// Unjudged positions below the limit with a fate other than a simple arrival, in order.
    others: Vec<(u32, FirstTransmission)>,
}

impl End {
    fn fates(&self, positions: Range<u32>, mut each: impl FnMut(FirstTransmission, u32)) {
        let limit = self.limit.clamp(positions.start, positions.end);
        let mut next = positions.start;
        for &(position, fate) in &self.others {
            if (next..limit).contains(&position) {
                each(FirstTransmission::Arrived, position - next);
                each(fate, 1);
                next = position + 1;
            }
        }
        each(FirstTransmission::Arrived, limit - next);
        each(FirstTransmission::Unknown, positions.end - limit);
    }
}

impl MeteredMessage {
    pub(super) fn new(message: &Message, order: Box<dyn WireOrder + Send>) -> Self {
        Self {
            number: message.number,
            length: order.len(),
            order,
            judged: 0,
            watched: 0,
            front: 0,
            searched: 0,
            reach: MIN_REACH,
            rebuilt: BTreeMap::new(),
            end: None,
        }
    }

    /// Number of its positions.
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// One past the highest position seen, or 0 if none was seen.
    pub(super) fn front(&self) -> u32 {
        self.front
    }

    /// Returns whether the front has passed chunks `..end`, as far as that is easy to see.
    pub(super) fn has_passed(&self, end: u32) -> bool {
        self.order.is_sequence() && end <= self.front
    }

    pub(super) fn is_closed(&self) -> bool {
        self.end.is_some()
    }

    pub(super) fn rebuilt(&mut self, chunk: u32) {
        self.rebuilt.insert(chunk, self.front);
    }

    /// Handles a chunk that was rebuilt, or missing when the message ended, and then arrived.
    pub(super) fn handle_late(&mut self, chunk: (MessageId, u32), is_whole: bool) {
        if !chunk.0.is_parity() && self.rebuilt.contains_key(&chunk.1) {
            if is_whole {
                self.rebuilt.remove(&chunk.1);
            } else {
                // Treat it as if it had been computed ahead of its turn.
                self.rebuilt.insert(chunk.1, 0);
            }
        }
        let Some(end) = &mut self.end else {
            return;
        };
        let mut lost = end
            .others
            .iter_mut()
            .filter(|(_, fate)| *fate == FirstTransmission::Lost);
        if let Some((_, fate)) = lost.find(|(position, _)| self.order.at(*position) == Some(chunk))
        {
            *fate = match is_whole {
                true => FirstTransmission::Arrived,
                false => FirstTransmission::Unknown,
            };
        }
    }

    /// Reports the fates of the unjudged positions below `end`, for a message that has ended.
    pub(super) fn fates_at_end(&self, end: u32, each: impl FnMut(FirstTransmission, u32)) {
        if self.front > 0
            && self.length > 1
            && let Some(known) = &self.end
        {
            known.fates(self.judged..end.max(self.judged), each);
        }
    }

    /// Advances the front. Returns by how many positions, if any. Several calls cross a gap that is
    /// longer than the range that one call searches.
    pub(super) fn advance(&mut self, arrivals: &dyn Arrivals) -> Option<u32> {
        if self.is_closed() {
            return None;
        }
        let before = self.front;
        if self.order.is_sequence() {
            self.front = before.max(arrivals.seen(self.number.into()).min(self.length));
        } else {
            self.search(arrivals);
        }
        let moved_by = self.front - before;
        (moved_by > 0).then_some(moved_by)
    }

    fn search(&mut self, arrivals: &dyn Arrivals) {
        let before = self.front;
        let mut bits = Bits::new(arrivals);
        let mut position = self.searched.max(self.front);
        let mut stop = position.saturating_add(self.reach);
        while position < stop.min(self.length) {
            if self.has_arrived(position, &mut bits) {
                self.front = position + 1;
                stop = self.front.saturating_add(MIN_REACH);
            }
            position += 1;
        }
        if self.front > before {
            (self.searched, self.reach) = (self.front, MIN_REACH);
        } else if position >= self.length {
            self.searched = self.front;
        } else {
            (self.searched, self.reach) = (position, MAX_REACH.min(self.reach * 2));
        }
    }

    /// The positions below `end` that were not taken before.
    pub(super) fn take_to_judge(&mut self, end: u32) -> Range<u32> {
        let positions = self.judged..end.max(self.judged);
        self.judged = positions.end;
        positions
    }

    /// The positions that the front has passed and that were not taken before. `is_newest`: the front
    /// is in this message, and not in a newer one.
    pub(super) fn take_to_watch(&mut self, is_newest: bool) -> Range<u32> {
        let end = match is_newest {
            true => self.front.saturating_sub(1),
            false => self.length,
        };
        let positions = self.watched..end.max(self.watched);
        self.watched = positions.end;
        positions
    }

    /// Reports data chunks at these positions that have not arrived, at most `most`. A message of
    /// which nothing has arrived may have been cleared later than a newer one, so it has none.
    pub(super) fn missing(
        &self,
        positions: Range<u32>,
        arrivals: &dyn Arrivals,
        most: usize,
        mut each: impl FnMut((MessageId, u32), u32),
    ) {
        if self.front == 0 || self.is_closed() {
            return;
        }
        if self.order.is_sequence() {
            let id = MessageId::new(self.number);
            let missing = Missing::new(arrivals, id, positions).flatten();
            missing
                .take(most)
                .for_each(|chunk| each((id, chunk), chunk));
            return;
        }
        let mut bits = Bits::new(arrivals);
        let chunks = positions.filter_map(|position| Some((self.order.at(position)?, position)));
        let missing = chunks.filter(|(chunk, _)| {
            let is_missing = !chunk.0.is_parity() && !bits.has(*chunk);
            is_missing && !self.rebuilt.contains_key(&chunk.1)
        });
        missing
            .take(most)
            .for_each(|(chunk, position)| each(chunk, position));
    }

    /// Reports the fates of these positions, in runs of equal fate. The sender has passed all of
    /// them.
    pub(super) fn fates(
        &self,
        positions: Range<u32>,
        arrivals: &dyn Arrivals,
        mut each: impl FnMut(FirstTransmission, u32),
    ) {
        // If no chunk was seen in its turn, the sender may have sent nothing. For a message of a
        // single chunk, the meter can detect an arrival but not a loss.
        if self.front == 0 || self.length == 1 {
            each(FirstTransmission::Unknown, positions.end - positions.start);
        } else if let Some(end) = &self.end {
            end.fates(positions, each);
        } else if self.order.is_sequence() {
            self.fates_in_sequence(positions, arrivals, each);
        } else {
            let mut bits = Bits::new(arrivals);
            let mut parity_front = None;
            for position in positions {
                each(self.fate(position, &mut parity_front, &mut bits), 1);
            }
        }
    }

    fn fates_in_sequence(
        &self,
        positions: Range<u32>,
        arrivals: &dyn Arrivals,
        mut each: impl FnMut(FirstTransmission, u32),
    ) {
        for (word, mask) in words_of(positions) {
            let bits = arrivals.word(self.number.into(), word);
            let (mut at, end) = (mask.trailing_zeros(), 64 - mask.leading_zeros());
            while at < end {
                let rest = bits >> at;
                let (fate, run) = match rest & 1 {
                    0 => (FirstTransmission::Lost, rest.trailing_zeros()),
                    _ => (FirstTransmission::Arrived, rest.trailing_ones()),
                };
                let run = run.min(end - at);
                each(fate, run);
                at += run;
            }
        }
    }

    /// Keeps the fates for use after the bitmap is gone. `was_left`: the front is in a newer
    /// message.
    pub(super) fn close(&mut self, arrivals: &dyn Arrivals, was_left: bool) {
        let is_whole = if self.order.is_sequence() {
            cumulative(arrivals, self.number, self.judged, self.length) >= self.length
        } else {
            let mut bits = Bits::new(arrivals);
            (self.judged..self.length).all(|position| self.has_arrived(position, &mut bits))
        };
        let limit = if is_whole || was_left {
            self.length
        } else {
            self.front - 1
        };
        let mut others = Vec::new();
        if !is_whole {
            let mut position = self.judged;
            self.fates(
                self.judged..limit.max(self.judged),
                arrivals,
                |fate, run| {
                    let run = position..position + run;
                    position = run.end;
                    if fate != FirstTransmission::Arrived {
                        others.extend(run.map(|position| (position, fate)));
                    }
                },
            );
        }
        self.end = Some(End { limit, others });
    }

    /// `parity_front` is set at the first position that needs it, and holds for later ones.
    fn fate(
        &self,
        position: u32,
        parity_front: &mut Option<u32>,
        bits: &mut Bits<'_>,
    ) -> FirstTransmission {
        let Some(chunk) = self.order.at(position) else {
            return FirstTransmission::Unknown;
        };
        if chunk.0.is_parity() {
            if bits.has(chunk) {
                return FirstTransmission::Arrived;
            }
            let front = parity_front.get_or_insert_with(|| self.parity_front(position, bits));
            return match position < *front {
                true => FirstTransmission::Lost,
                false => FirstTransmission::Elsewhere,
            };
        }
        match self.rebuilt.get(&chunk.1) {
            Some(&front) if position < front => FirstTransmission::Lost,
            // It was computed ahead of its turn.
            Some(_) => FirstTransmission::Unknown,
            None if bits.has(chunk) => FirstTransmission::Arrived,
            None => FirstTransmission::Lost,
        }
    }

    /// One past the highest position, from `from` on, of a parity chunk that has arrived, or `from`
    /// if there is none. Parity chunks that were not ready in their turn arrive after it.
    fn parity_front(&self, from: u32, bits: &mut Bits<'_>) -> u32 {
        let mut is_parity_here = |position: u32| {
            let chunk = self.order.at(position);
            chunk.is_some_and(|chunk| chunk.0.is_parity() && bits.has(chunk))
        };
        let highest = (from..self.front).rev().find(|p| is_parity_here(*p));
        highest.map_or(from, |position| position + 1)
    }

    fn has_arrived(&self, position: u32, bits: &mut Bits<'_>) -> bool {
        let Some(chunk) = self.order.at(position) else {
            return false;
        };
        let is_rebuilt = !chunk.0.is_parity() && self.rebuilt.contains_key(&chunk.1);
        bits.has(chunk) && !is_rebuilt
    }
}

impl fmt::Debug for MeteredMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredMessage")
            .field("number", &self.number)
            .field("length", &self.length)
            .field("judged", &self.judged)
            .field("front", &self.front)
            .finish_non_exhaustive()
    }
}

/// Reads a bitmap chunk by chunk, keeping the word that it read last.
struct Bits<'a> {
    arrivals: &'a dyn Arrivals,
    place: (MessageId, u32),
    word: Option<u64>,
}

impl<'a> Bits<'a> {
    fn new(arrivals: &'a dyn Arrivals) -> Self {
        Self {
            arrivals,
            place: (MessageId::new(0), 0),
            word: None,
        }
    }

    fn has(&mut self, (message, chunk): (MessageId, u32)) -> bool {
        let place = (message, chunk / 64);
        let word = match self.word {
            Some(word) if place == self.place => word,
            _ => self.arrivals.word(place.0, place.1),
        };
        (self.place, self.word) = (place, Some(word));
        word >> (chunk % 64) & 1 != 0
    }
}
