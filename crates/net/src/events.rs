//! The event queue of a network.

use std::mem;

use crate::NodeId;
use crate::arena::FrameId;
use crate::ids::{PortId, next_id};

/// An event at an instant of virtual time.
// A tag of four bytes: the compiler copies what follows a tag of one byte by two writes that overlap,
// and the processor waits for both of them when the copy is read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Event {
    /// The last bit of a frame arrives at a port.
    Arrive {
        port: PortId,
        frame: FrameId,
        /// Number of failures of the cable up to the sending of the frame.
        epoch: u32,
    },
    /// A port has sent the last bit of a frame and can send more.
    PortFree(PortId),
    /// A PFC frame arrives at a port: the priorities in `stopped` stop, all others resume.
    Pause {
        port: PortId,
        stopped: u8,
        /// Number of failures of the cable up to the sending of the PFC frame.
        epoch: u32,
    },
    /// A device wants to be polled.
    Wake(NodeId),
    /// A scheduled change of a cable, by its index in the list of changes.
    Change(u32),
    /// All switches get new routing tables for the cables that are up now.
    Reroute,
}

/// The calendar covers 2^12 ns: the times that agree with the clock in all higher bits.
const CALENDAR_BITS: u32 = 12;
const CALENDAR_NS: usize = 1 << CALENDAR_BITS;
/// Days of a word of [`Events::occupied_days`].
const WORD_DAYS: usize = 64;
const NONE: u32 = u32::MAX;

/// A priority queue of events by time. Events of one instant come out in the order in which they
/// were added.
///
/// This is a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, JACM 1990) above a calendar (Brown,
/// CACM 1988). Virtual time never runs backward. An event whose time differs from the clock in a
/// bit above the calendar waits in bucket `n`, where `n` is the highest such bit. When the clock
/// reaches that bit, the events of the bucket move to the calendar or to lower buckets. The calendar
/// has a list for each nanosecond. All events of one instant are always in the same bucket or list,
/// so they keep their order without sequence numbers. Most delays in a data center are shorter than
/// the calendar, so most events are added to a list and removed from it, and never move.
#[derive(Debug)]
pub(crate) struct Events {
    now_ns: u64,
    /// The lists of the calendar: the last event, or [`NONE`].
    days: Box<[u32; CALENDAR_NS]>,
    /// One bit per day that has events.
    occupied_days: [u64; CALENDAR_NS / WORD_DAYS],
    /// One bit per word of `occupied_days` that is not 0.
    occupied_words: u64,
    /// The events of all days. Free ones are in a list too, which begins at `free`.
    listed: Vec<Listed>,
    free: u32,
    /// Bucket `n` holds the events whose time differs from now in bit `n` and in no higher bit.
    later: [Vec<(u64, Event)>; 64],
    /// One bit per bucket that is not empty.
    occupied: u64,
}

/// An event of the calendar, and the one after it in its list. The last event is followed by the
/// first one, so a list needs one number, and the calendar takes little of the processor's caches.
#[derive(Clone, Copy, Debug)]
struct Listed {
    event: Event,
    next: u32,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            now_ns: 0,
            days: Box::new([NONE; CALENDAR_NS]),
            occupied_days: [0; CALENDAR_NS / WORD_DAYS],
            occupied_words: 0,
            listed: Vec::new(),
            free: NONE,
            later: [const { Vec::new() }; 64],
            occupied: 0,
        }
    }
}

impl Events {
    /// Adds an event. An event in the past happens now.
    pub(crate) fn add(&mut self, at_ns: u64, event: Event) {
        let at_ns = at_ns.max(self.now_ns);
        let differs = self.now_ns ^ at_ns;
        if differs < CALENDAR_NS as u64 {
            self.list(day_of(at_ns), event);
        } else {
            let bit = differs.ilog2();
            self.later[bit as usize].push((at_ns, event));
            self.occupied |= 1 << bit;
        }
    }

    /// Adds an event to a day of the calendar.
    fn list(&mut self, day: usize, event: Event) {
        let mut at = self.free;
        if at == NONE {
            at = next_id(self.listed.len());
            self.listed.push(Listed { event, next: at });
        } else {
            self.free = self.listed[at as usize].next;
        }
        let last = mem::replace(&mut self.days[day], at);
        let first = if last == NONE {
            self.occupied_days[day / WORD_DAYS] |= 1 << (day % WORD_DAYS);
            self.occupied_words |= 1 << (day / WORD_DAYS);
            at
        } else {
            mem::replace(&mut self.listed[last as usize].next, at)
        };
        self.listed[at as usize] = Listed { event, next: first };
    }

    /// Time of the next event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let day = self.next_day().map(|day| self.time_of(day));
        day.or_else(|| self.earliest().map(|(at_ns, _)| at_ns))
    }

    /// Removes the next event, unless it is after `until_ns`. Calls `soon` once for each event that
    /// comes within 64 ns, if the event was added before that.
    pub(crate) fn pop_until(
        &mut self,
        until_ns: u64,
        soon: impl Fn(&Event),
    ) -> Option<(u64, Event)> {
        let day = match self.next_day() {
            Some(day) => day,
            None => {
                let (at_ns, bucket) = self.earliest()?;
                if at_ns > until_ns {
                    return None;
                }
                self.turn_over(at_ns, bucket);
                self.announce(day_of(at_ns) / WORD_DAYS, &soon);
                day_of(at_ns)
            }
        };
        let at_ns = self.time_of(day);
        if at_ns > until_ns {
            return None;
        }
        if self.now_ns / WORD_DAYS as u64 != at_ns / WORD_DAYS as u64 {
            self.announce(day / WORD_DAYS, &soon);
        }
        self.now_ns = at_ns;
        Some((at_ns, self.unlist(day)))
    }

    /// Removes the first event of a day, which has one.
    fn unlist(&mut self, day: usize) -> Event {
        let last = self.days[day];
        let first = self.listed[last as usize].next;
        let Listed { event, next } = self.listed[first as usize];
        self.listed[first as usize].next = self.free;
        self.free = first;
        if first == last {
            self.days[day] = NONE;
            let word = &mut self.occupied_days[day / WORD_DAYS];
            *word &= !(1 << (day % WORD_DAYS));
            if *word == 0 {
                self.occupied_words &= !(1 << (day / WORD_DAYS));
            }
        } else {
            self.listed[last as usize].next = next;
        }
        event
    }

    /// Calls `soon` for the events of the days of a word.
    fn announce(&self, word: usize, soon: impl Fn(&Event)) {
        let mut days = self.occupied_days[word];
        while days != 0 {
            let last = self.days[word * WORD_DAYS + days.trailing_zeros() as usize];
            let mut at = last;
            loop {
                let Listed { event, next } = &self.listed[at as usize];
                soon(event);
                at = *next;
                if at == last {
                    break;
                }
            }
            days &= days - 1;
        }
    }

    /// The first day that has events. Days before now have none.
    fn next_day(&self) -> Option<usize> {
        if self.occupied_words == 0 {
            return None;
        }
        let word = self.occupied_words.trailing_zeros() as usize;
        Some(word * WORD_DAYS + self.occupied_days[word].trailing_zeros() as usize)
    }

    /// Time of a day.
    fn time_of(&self, day: usize) -> u64 {
        self.now_ns & !(CALENDAR_NS as u64 - 1) | day as u64
    }

    /// Time and bucket of the earliest event after the calendar. It is in the lowest bucket that is
    /// not empty: all events in higher buckets are later.
    fn earliest(&self) -> Option<(u64, usize)> {
        if self.occupied == 0 {
            return None;
        }
        let bucket = self.occupied.trailing_zeros() as usize;
        let times = self.later[bucket].iter().map(|(at_ns, _)| *at_ns);
        times.min().map(|at_ns| (at_ns, bucket))
    }

    /// Moves the clock to the earliest event after the calendar, which is empty, and moves the
    /// events of its bucket to the calendar and to lower buckets.
    fn turn_over(&mut self, at_ns: u64, bucket: usize) {
        debug_assert!(self.now_ns < at_ns, "time never runs backward");
        self.now_ns = at_ns;
        self.occupied &= !(1 << bucket);
        let mut moved = mem::take(&mut self.later[bucket]);
        for (at_ns, event) in moved.drain(..) {
            self.add(at_ns, event);
        }
        // No event returned to this bucket, so its list is empty. Reuse the list's memory.
        self.later[bucket] = moved;
    }
}

/// The day of the calendar for a time.
fn day_of(at_ns: u64) -> usize {
    // The remainder is below 2^12.
    #[allow(clippy::cast_possible_truncation)]
    let day = (at_ns % CALENDAR_NS as u64) as usize;
    day
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_link::Rng;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_adding() {
        let mut events = Events::default();
        for (at_ns, node) in [(5, 0), (3, 1), (5, 2), (3, 3), (4, 4)] {
            events.add(at_ns, Event::Wake(NodeId(node)));
        }
        assert_eq!(
            (events.next_ns(), events.pop_until(2, |_| ())),
            (Some(3), None)
        );
        let order: Vec<_> = std::iter::from_fn(|| events.pop_until(5, |_| ())).collect();
        let want = [(3, 1), (3, 3), (4, 4), (5, 0), (5, 2)];
        let want = want.map(|(at_ns, node)| (at_ns, Event::Wake(NodeId(node))));
        assert_eq!(order, want);
        assert_eq!(events.next_ns(), None);
    }

    /// Compares the queue with a sorted list under random calls.
    #[test]
    fn the_order_is_that_of_a_sorted_list() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut events = Events::default();
            let mut list: Vec<(u64, u32)> = Vec::new();
            let mut now_ns = 0;
            for number in 0..2000 {
                if rng.chance(0.6) {
                    let after_ns = rng.bits() >> (32 + rng.below(32));
                    let at_ns = now_ns + after_ns * rng.below(2) as u64;
                    events.add(at_ns, Event::Wake(NodeId(number)));
                    list.push((at_ns, number));
                }
                if rng.chance(0.5) {
                    let until_ns = now_ns + (rng.bits() >> (32 + rng.below(32)));
                    list.sort_unstable();
                    assert_eq!(events.next_ns(), list.first().map(|(at_ns, _)| *at_ns));
                    let due = list
                        .first()
                        .filter(|(at_ns, _)| *at_ns <= until_ns)
                        .copied();
                    let came = events.pop_until(until_ns, |_| ());
                    assert_eq!(came, due.map(|(at_ns, n)| (at_ns, Event::Wake(NodeId(n)))));
                    if let Some((at_ns, _)) = due {
                        now_ns = at_ns;
                        list.remove(0);
                    }
                }
            }
        }
    }
}
