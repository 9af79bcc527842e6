//! The event queue of a network.

use std::mem;

use crate::NodeId;
use crate::arena::FrameId;
use crate::ids::PortId;

/// An event at an instant of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Events in buckets up to this one are less than 2^6 ns away: some hundred events in a large
/// network.
const SOON_BIT: usize = 6;

/// A priority queue of events by time. Events of one instant come out in the order in which they
/// were added.
///
/// This is a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, JACM 1990). Virtual time never runs
/// backward. An event therefore waits in bucket `n`, where `n` is the highest bit in which its time
/// differs from the current time. When the clock reaches that bit, the events of the bucket move to
/// lower buckets. All events of one instant are always in the same bucket, so they keep their order
/// without sequence numbers. Adding an event is one push onto a list. With a binary heap instead,
/// networks of a hundred hosts ran at two thirds of this speed.
#[derive(Debug)]
pub(crate) struct Events {
    now_ns: u64,
    /// Events of the current instant; the first `done` are done.
    present: Vec<Event>,
    done: usize,
    /// Bucket `n` holds the events whose time differs from now in bit `n` and in no higher bit.
    later: [Vec<(u64, Event)>; 64],
    /// One bit per bucket that is not empty.
    occupied: u64,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            now_ns: 0,
            present: Vec::new(),
            done: 0,
            later: [const { Vec::new() }; 64],
            occupied: 0,
        }
    }
}

impl Events {
    /// Adds an event. An event in the past happens now.
    pub(crate) fn add(&mut self, at_ns: u64, event: Event) {
        let differs = self.now_ns ^ at_ns.max(self.now_ns);
        match differs.checked_ilog2() {
            None => self.present.push(event),
            Some(bit) => {
                self.later[bit as usize].push((at_ns, event));
                self.occupied |= 1 << bit;
            }
        }
    }

    /// Time of the next event.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.done < self.present.len() {
            return Some(self.now_ns);
        }
        self.earliest().map(|(at_ns, _)| at_ns)
    }

    /// Removes the next event, unless it is after `until_ns`. Calls `soon` once for each event that
    /// comes within 2^[`SOON_BIT`] ns, if the event was added before that.
    pub(crate) fn pop_until(
        &mut self,
        until_ns: u64,
        soon: impl Fn(&Event),
    ) -> Option<(u64, Event)> {
        if self.done == self.present.len() {
            let (at_ns, bucket) = self.earliest()?;
            if at_ns > until_ns {
                return None;
            }
            self.advance(at_ns, bucket, soon);
        } else if self.now_ns > until_ns {
            return None;
        }
        let event = self.present[self.done];
        self.done += 1;
        Some((self.now_ns, event))
    }

    /// Time and bucket of the earliest later event. It is in the lowest bucket that is not empty:
    /// all events in higher buckets are later.
    fn earliest(&self) -> Option<(u64, usize)> {
        if self.occupied == 0 {
            return None;
        }
        let bucket = self.occupied.trailing_zeros() as usize;
        let times = self.later[bucket].iter().map(|(at_ns, _)| *at_ns);
        times.min().map(|at_ns| (at_ns, bucket))
    }

    /// Moves the clock to the earliest event, and the other events of its bucket to lower buckets.
    fn advance(&mut self, at_ns: u64, bucket: usize, soon: impl Fn(&Event)) {
        debug_assert!(self.now_ns < at_ns, "time never runs backward");
        self.present.clear();
        self.done = 0;
        self.now_ns = at_ns;
        self.occupied &= !(1 << bucket);
        let mut moved = mem::take(&mut self.later[bucket]);
        for (at_ns, event) in moved.drain(..) {
            if bucket >= SOON_BIT && (at_ns ^ self.now_ns) >> SOON_BIT == 0 {
                soon(&event);
            }
            self.add(at_ns, event);
        }
        // No event returned to this bucket, so its list is empty. Reuse the list's memory.
        self.later[bucket] = moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farwrite_link::Dice;

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
            let mut dice = Dice::new(seed);
            let mut events = Events::default();
            let mut list: Vec<(u64, u32)> = Vec::new();
            let mut now_ns = 0;
            for number in 0..2000 {
                if dice.chance(0.6) {
                    let after_ns = dice.bits() >> (32 + dice.below(32));
                    let at_ns = now_ns + after_ns * dice.below(2) as u64;
                    events.add(at_ns, Event::Wake(NodeId(number)));
                    list.push((at_ns, number));
                }
                if dice.chance(0.5) {
                    let until_ns = now_ns + (dice.bits() >> (32 + dice.below(32)));
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
