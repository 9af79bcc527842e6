//! One timer for each queue pair, in a binary heap.
//!
//! A queue pair moves its timer with every poll that visits it. The heap therefore records the
//! place of each timer. Moving a timer costs O(log n) and leaves no stale entry.

/// Marks a queue pair without a timer.
const NOWHERE: u32 = u32::MAX;

/// Timers by index of queue pair.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// Times and indices. Each time is no later than the times of its two children, at `2 * i + 1`
    /// and `2 * i + 2`.
    heap: Vec<(u64, u32)>,
    /// The place of each index's timer in `heap`, or [`NOWHERE`].
    places: Vec<u32>,
}

impl Timers {
    /// Sets the timer of an index, moves it, or removes it.
    pub(super) fn set(&mut self, index: u32, at_ns: Option<u64>) {
        let place = self.place(index);
        match (place, at_ns) {
            (None, None) => {}
            (None, Some(at_ns)) => {
                self.heap.push((at_ns, index));
                self.sift_up(self.heap.len() - 1);
            }
            (Some(place), Some(at_ns)) => {
                let before_ns = std::mem::replace(&mut self.heap[place].0, at_ns);
                if at_ns < before_ns {
                    self.sift_up(place);
                } else if at_ns > before_ns {
                    self.sift_down(place);
                }
            }
            (Some(place), None) => self.remove_at(place),
        }
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.first().map(|&(at_ns, _)| at_ns)
    }

    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<u32> {
        let &(at_ns, index) = self.heap.first()?;
        (at_ns <= now_ns).then(|| {
            self.remove_at(0);
            index
        })
    }

    fn place(&self, index: u32) -> Option<usize> {
        let place = *self.places.get(index as usize)?;
        (place != NOWHERE).then_some(place as usize)
    }

    fn remove_at(&mut self, place: usize) {
        let (at_ns, index) = self.heap.swap_remove(place);
        self.places[index as usize] = NOWHERE;
        if let Some(&(moved_ns, _)) = self.heap.get(place) {
            if moved_ns < at_ns {
                self.sift_up(place);
            } else {
                self.sift_down(place);
            }
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        while place > 0 {
            let parent = (place - 1) / 2;
            if self.heap[parent].0 <= self.heap[place].0 {
                break;
            }
            self.heap.swap(parent, place);
            self.note_place(place);
            place = parent;
        }
        self.note_place(place);
    }

    fn sift_down(&mut self, mut place: usize) {
        loop {
            let children = [2 * place + 1, 2 * place + 2].into_iter();
            let children = children.filter(|&child| child < self.heap.len());
            let Some(child) = children.min_by_key(|&child| self.heap[child].0) else {
                break;
            };
            if self.heap[place].0 <= self.heap[child].0 {
                break;
            }
            self.heap.swap(place, child);
            self.note_place(place);
            place = child;
        }
        self.note_place(place);
    }

    fn note_place(&mut self, place: usize) {
        let index = self.heap[place].1 as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NOWHERE);
        }
        self.places[index] = u32::try_from(place).expect("at most one timer an index");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timers_come_out_in_order_once() {
        let mut timers = Timers::default();
        for (index, at_ns) in [(0, 30), (1, 10), (2, 20)] {
            timers.set(index, Some(at_ns));
        }
        timers.set(0, Some(5));
        timers.set(2, None);
        assert_eq!(timers.next_ns(), Some(5));
        assert_eq!(timers.pop_due(9), Some(0));
        assert_eq!(timers.pop_due(9), None);
        assert_eq!(timers.pop_due(10), Some(1));
        assert_eq!((timers.next_ns(), timers.pop_due(u64::MAX)), (None, None));
    }

    proptest! {
        #[test]
        fn the_heap_agrees_with_a_sorted_map(
            steps in prop::collection::vec((0_u32..20, prop::option::of(0_u64..50), 0_u64..60), 0..300)
        ) {
            let (mut timers, mut map) = (Timers::default(), BTreeMap::new());
            for (index, at_ns, now_ns) in steps {
                timers.set(index, at_ns);
                match at_ns {
                    Some(at_ns) => map.insert(index, at_ns),
                    None => map.remove(&index),
                };
                prop_assert_eq!(timers.next_ns(), map.values().min().copied());
                if now_ns % 3 == 0 && let Some(due) = timers.pop_due(now_ns) {
                    let at_ns = map.remove(&due);
                    prop_assert!(at_ns.is_some_and(|at| at <= now_ns));
                    prop_assert!(map.values().all(|&other| Some(other) >= at_ns));
                }
            }
        }
    }
}
