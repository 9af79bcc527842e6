//! The queue of an output port, which drops repairs before data.

use alloc::collections::VecDeque;

use crate::Class;

/// Frames that wait at a port, in order. Frames that are *ahead* leave before the others. A box
/// sends more than it receives, so its port can fill up although the links on both sides have the
/// same rate. Then repairs make room for data.
///
/// LoWAR's repairs keep their place among the data: a repair that data overtakes is useless
/// ([`Middlebox::poll`](crate::Middlebox::poll)), so the queue drops it or sends it in order. NetRT's
/// are ahead.
#[derive(Debug)]
pub struct PortQueue<T> {
    /// Frames that leave before those in `frames`.
    ahead: VecDeque<Waiting<T>>,
    /// `None` where a repair was dropped.
    frames: VecDeque<Option<Waiting<T>>>,
    /// Number of the first entry of `frames`.
    first: u64,
    /// Numbers of the repairs in `frames`.
    repairs: VecDeque<u64>,
    max_bytes: u64,
    data_bytes: u64,
    repair_bytes: u64,
    repairs_dropped: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    class: Class,
    bytes: u64,
    frame: T,
}

impl<T> PortQueue<T> {
    /// A queue of up to `max_bytes`.
    #[must_use]
    pub fn new(max_bytes: u64) -> Self {
        Self {
            ahead: VecDeque::new(),
            frames: VecDeque::new(),
            first: 0,
            repairs: VecDeque::new(),
            max_bytes,
            data_bytes: 0,
            repair_bytes: 0,
            repairs_dropped: 0,
        }
    }

    /// Whether data fills the queue. The caller then takes no more data: [`push`](Self::push) would
    /// exceed the limit.
    #[must_use]
    pub fn is_full_of_data(&self) -> bool {
        self.data_bytes >= self.max_bytes
    }

    /// Adds a frame of this length. If the queue has no room, repairs are dropped: the new frame if
    /// it is one, else those that wait, the latest first. Earlier ones leave sooner, so they are
    /// more likely to arrive in time.
    pub fn push(&mut self, class: Class, bytes: u64, frame: T) {
        if !self.admit(class, bytes) {
            return;
        }
        if class == Class::Repair {
            self.repairs
                .push_back(self.first + self.frames.len() as u64);
        }
        self.frames.push_back(Some(Waiting {
            class,
            bytes,
            frame,
        }));
    }

    /// As [`push`](Self::push), but the frame leaves before all frames that are not ahead.
    pub fn push_ahead(&mut self, class: Class, bytes: u64, frame: T) {
        if self.admit(class, bytes) {
            self.ahead.push_back(Waiting {
                class,
                bytes,
                frame,
            });
        }
    }

    /// Makes room for a frame and counts its bytes. Returns `false` for a repair that finds no room.
    fn admit(&mut self, class: Class, bytes: u64) -> bool {
        let fits = |queue: &Self| queue.bytes() + bytes <= queue.max_bytes;
        match class {
            Class::Data => {
                while !fits(self) && self.drop_latest_repair() {}
                self.data_bytes += bytes;
            }
            Class::Repair if fits(self) => self.repair_bytes += bytes,
            Class::Repair => {
                self.repairs_dropped += 1;
                return false;
            }
        }
        true
    }

    /// Removes and returns the first frame.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Removes and returns the first frame that `chosen` accepts.
    pub fn pop_if(&mut self, chosen: impl Fn(&T) -> bool) -> Option<T> {
        if let Some(at) = self.ahead.iter().position(|w| chosen(&w.frame)) {
            let waiting = self.ahead.remove(at)?;
            self.forget_bytes(&waiting);
            return Some(waiting.frame);
        }
        let is_chosen =
            |entry: &Option<Waiting<T>>| entry.as_ref().is_some_and(|w| chosen(&w.frame));
        let at = self.frames.iter().position(is_chosen)?;
        let waiting = self.frames[at].take()?;
        self.forget_bytes(&waiting);
        let number = self.first + at as u64;
        if let Ok(at) = self.repairs.binary_search(&number) {
            self.repairs.remove(at);
        }
        while let Some(None) = self.frames.front() {
            self.frames.pop_front();
            self.first += 1;
        }
        Some(waiting.frame)
    }

    /// The frames in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let frames = self.ahead.iter().chain(self.frames.iter().flatten());
        frames.map(|waiting| &waiting.frame)
    }

    /// Number of frames that are ahead. They are the first ones.
    #[must_use]
    pub fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Whether no frame waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes() == 0
    }

    /// Bytes in the queue.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.data_bytes + self.repair_bytes
    }

    /// Repairs dropped so far.
    #[must_use]
    pub fn repairs_dropped(&self) -> u64 {
        self.repairs_dropped
    }

    fn forget_bytes(&mut self, waiting: &Waiting<T>) {
        match waiting.class {
            Class::Data => self.data_bytes -= waiting.bytes,
            Class::Repair => self.repair_bytes -= waiting.bytes,
        }
    }

    /// Returns `false` if there is no repair.
    fn drop_latest_repair(&mut self) -> bool {
        let dropped = match self.repairs.pop_back() {
            // The deque holds all numbers from `first` on.
            Some(number) => usize::try_from(number - self.first)
                .ok()
                .and_then(|at| self.frames.get_mut(at)?.take()),
            None => {
                let at = self.ahead.iter().rposition(|w| w.class == Class::Repair);
                at.and_then(|at| self.ahead.remove(at))
            }
        };
        if let Some(waiting) = &dropped {
            self.forget_bytes(waiting);
            self.repairs_dropped += 1;
        }
        dropped.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn full() -> PortQueue<u32> {
        let mut queue = PortQueue::new(1000);
        for number in 0..10 {
            let class = match number % 3 {
                2 => Class::Repair,
                _ => Class::Data,
            };
            queue.push(class, 100, number);
        }
        queue
    }

    fn drain(queue: &mut PortQueue<u32>) -> Vec<u32> {
        core::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn repairs_make_room_for_data_the_latest_first() {
        let mut queue = full();
        queue.push(Class::Data, 100, 10);
        queue.push(Class::Data, 50, 11);
        assert_eq!((queue.bytes(), queue.repairs_dropped()), (950, 2));
        queue.push(Class::Repair, 51, 12);
        queue.push(Class::Repair, 50, 13);
        assert_eq!((queue.bytes(), queue.repairs_dropped()), (1000, 3));
        assert_eq!(drain(&mut queue), [0, 1, 2, 3, 4, 6, 7, 9, 10, 11, 13]);
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn data_never_makes_room_for_data() {
        let mut queue = full();
        for number in 10..13 {
            assert!(!queue.is_full_of_data());
            queue.push(Class::Data, 100, number);
        }
        assert!(queue.is_full_of_data());
        assert_eq!((queue.bytes(), queue.repairs_dropped()), (1000, 3));
        queue.push(Class::Data, 100, 13);
        assert_eq!(drain(&mut queue).len(), 11);
    }

    #[test]
    fn frames_that_are_ahead_leave_first_and_are_dropped_last() {
        let mut queue = PortQueue::new(600);
        queue.push(Class::Data, 100, 0);
        queue.push(Class::Repair, 100, 1);
        queue.push_ahead(Class::Repair, 100, 2);
        queue.push_ahead(Class::Data, 100, 3);
        queue.push_ahead(Class::Repair, 100, 4);
        assert_eq!(queue.iter().copied().collect::<Vec<_>>(), [2, 3, 4, 0, 1]);
        assert_eq!((queue.ahead(), queue.bytes()), (3, 500));
        // Room for two more: the repair behind, and then the latest repair that is ahead.
        queue.push(Class::Data, 200, 5);
        queue.push(Class::Data, 100, 6);
        assert_eq!((queue.bytes(), queue.repairs_dropped()), (600, 2));
        queue.push_ahead(Class::Repair, 100, 7);
        assert_eq!(queue.repairs_dropped(), 3);
        assert_eq!(queue.pop_if(|number| *number == 3), Some(3));
        assert_eq!(drain(&mut queue), [2, 0, 5, 6]);
        assert_eq!((queue.bytes(), queue.ahead()), (0, 0));
    }

    #[test]
    fn frames_can_leave_out_of_turn() {
        let mut queue = full();
        assert_eq!(queue.pop_if(|number| *number == 5), Some(5));
        assert_eq!(queue.pop_if(|number| *number == 1), Some(1));
        assert_eq!(queue.pop_if(|number| *number == 1), None);
        assert_eq!(
            queue.iter().copied().collect::<Vec<_>>(),
            [0, 2, 3, 4, 6, 7, 8, 9]
        );
        // The repairs that are left are 2 and 8.
        queue.push(Class::Data, 400, 10);
        assert_eq!(drain(&mut queue), [0, 3, 4, 6, 7, 9, 10]);
        assert_eq!((queue.bytes(), queue.repairs_dropped()), (0, 2));
    }
}
