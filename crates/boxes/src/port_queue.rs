//! The queue of an output port, which drops repairs before data.

use alloc::collections::VecDeque;

use crate::Class;

/// Frames that wait at a port, in order. A box sends more than it receives, so its port can fill up
/// although the links on both sides have the same rate. Then repairs make room for data.
///
/// Repairs keep their place among the data: a repair that data overtakes is useless
/// ([`PathBox::poll`](crate::PathBox::poll)), so the queue drops it or sends it in order.
#[derive(Debug)]
pub struct PortQueue<T> {
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
        let fits = |queue: &Self| queue.bytes() + bytes <= queue.max_bytes;
        match class {
            Class::Data => {
                while !fits(self) && self.drop_latest_repair() {}
                self.data_bytes += bytes;
            }
            Class::Repair if fits(self) => {
                self.repair_bytes += bytes;
                self.repairs
                    .push_back(self.first + self.frames.len() as u64);
            }
            Class::Repair => {
                self.repairs_dropped += 1;
                return;
            }
        }
        self.frames.push_back(Some(Waiting {
            class,
            bytes,
            frame,
        }));
    }

    /// Removes and returns the first frame.
    pub fn pop(&mut self) -> Option<T> {
        self.pop_if(|_| true)
    }

    /// Removes and returns the first frame that `chosen` accepts.
    pub fn pop_if(&mut self, chosen: impl Fn(&T) -> bool) -> Option<T> {
        let is_chosen =
            |entry: &Option<Waiting<T>>| entry.as_ref().is_some_and(|w| chosen(&w.frame));
        let at = self.frames.iter().position(is_chosen)?;
        let waiting = self.frames[at].take()?;
        match waiting.class {
            Class::Data => self.data_bytes -= waiting.bytes,
            Class::Repair => {
                self.repair_bytes -= waiting.bytes;
                let number = self.first + at as u64;
                if let Ok(at) = self.repairs.binary_search(&number) {
                    self.repairs.remove(at);
                }
            }
        }
        while let Some(None) = self.frames.front() {
            self.frames.pop_front();
            self.first += 1;
        }
        Some(waiting.frame)
    }

    /// The frames in order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.frames.iter().flatten().map(|waiting| &waiting.frame)
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

    fn drop_latest_repair(&mut self) -> bool {
        let Some(number) = self.repairs.pop_back() else {
            return false;
        };
        // The deque holds all numbers from `first` on.
        let at = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        if let Some(waiting) = self.frames.get_mut(at).and_then(Option::take) {
            self.repair_bytes -= waiting.bytes;
            self.repairs_dropped += 1;
        }
        true
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
