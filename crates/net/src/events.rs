//! The event queue of a network.

use std::mem;

use crate::NodeId;
use crate::arena::FrameId;
use crate::ids::PortId;

/// Something that happens at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The last bit of a frame has come in at a port.
    Arrive { port: PortId, frame: FrameId },
    /// A port has sent its last bit and can send more.
    Free(PortId),
    /// A PFC frame has come in at a port: the priorities in `stopped` stop, all others resume.
    Pause {
        port: PortId,
        stopped: u8,
        /// How often the cable had gone down when it was sent.
        epoch: u32,
    },
    /// A device wants to be polled.
    Wake(NodeId),
    /// A scheduled change of a cable, by its place in the list of changes.
    Change(u32),
    /// All switches get new tables, for the cables that are up now.
    Reroute,
}

/// Hands out events by time. Events of one instant come in the order in which they were added.
///
/// This is a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, JACM 1990). Time never runs backward,
/// so an event is kept in the place of the highest bit in which its time differs from now. It moves
/// to a lower place when the clock reaches that bit. Events of one instant are always in one place,
/// so they keep their order without sequence numbers. Adding is one push onto a list: networks of a
/// hundred hosts run half as fast again as with a binary heap.
#[derive(Debug)]
pub(crate) struct Events {
    now_ns: u64,
    /// Events of this instant, of which the first `done` are done.
    present: Vec<Event>,
    done: usize,
    /// In place n, events whose time differs from now in bit n, and in no higher one.
    later: [Vec<(u64, Event)>; 64],
    /// The places that are not empty, as bits.
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
    /// Adds an event; one of the past happens now.
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

    /// When the next event is.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        if self.done < self.present.len() {
            return Some(self.now_ns);
        }
        self.earliest().map(|(at_ns, _)| at_ns)
    }

    /// Removes the next event, unless it is after `until_ns`.
    pub(crate) fn pop_until(&mut self, until_ns: u64) -> Option<(u64, Event)> {
        if self.done == self.present.len() {
            let (at_ns, place) = self.earliest()?;
            if at_ns > until_ns {
                return None;
            }
            self.advance(at_ns, place);
        } else if self.now_ns > until_ns {
            return None;
        }
        let event = self.present[self.done];
        self.done += 1;
        Some((self.now_ns, event))
    }

    /// The time and place of the earliest later event. It is in the lowest place that is not empty:
    /// everything in higher places is later.
    fn earliest(&self) -> Option<(u64, usize)> {
        if self.occupied == 0 {
            return None;
        }
        let place = self.occupied.trailing_zeros() as usize;
        let times = self.later[place].iter().map(|(at_ns, _)| *at_ns);
        times.min().map(|at_ns| (at_ns, place))
    }

    /// Moves the clock to the earliest event, and the events of its place to lower places.
    fn advance(&mut self, at_ns: u64, place: usize) {
        self.present.clear();
        self.done = 0;
        self.now_ns = at_ns;
        self.occupied &= !(1 << place);
        let mut moved = mem::take(&mut self.later[place]);
        for (at_ns, event) in moved.drain(..) {
            self.add(at_ns, event);
        }
        // No event came back to this place, so the list is empty. It keeps its memory.
        self.later[place] = moved;
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
        assert_eq!((events.next_ns(), events.pop_until(2)), (Some(3), None));
        let order: Vec<_> = std::iter::from_fn(|| events.pop_until(5)).collect();
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
                    let came = events.pop_until(until_ns);
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
