//! Tracks which queue pairs have work.
//!
//! A poll visits only the queue pairs that are ready, so its cost does not depend on the number of
//! idle queue pairs. A queue pair becomes ready when something arrives for it, when its owner calls
//! it, or when its timer is due.

mod timers;

use std::collections::VecDeque;

use timers::Timers;

/// The ready list and the timers of an endpoint, by index of queue pair.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    ready: VecDeque<u32>,
    /// Whether each index is in `ready`.
    is_ready: Vec<bool>,
    timers: Timers,
}

impl Schedule {
    /// Marks a queue pair as ready.
    pub(crate) fn wake(&mut self, index: u32) {
        let place = index as usize;
        if place >= self.is_ready.len() {
            self.is_ready.resize(place + 1, false);
        }
        if !std::mem::replace(&mut self.is_ready[place], true) {
            self.ready.push_back(index);
        }
    }

    /// Sets the latest time at which a queue pair has work.
    pub(crate) fn set_timer(&mut self, index: u32, at_ns: Option<u64>) {
        self.timers.set(index, at_ns);
    }

    /// Wakes the queue pairs whose timers are due.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        while let Some(index) = self.timers.pop_due(now_ns) {
            self.wake(index);
        }
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Removes and returns the queue pair that has been ready for longest.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        self.is_ready[index as usize] = false;
        Some(index)
    }

    /// Removes a queue pair that has ended.
    pub(crate) fn remove(&mut self, index: u32) {
        self.timers.set(index, None);
        if let Some(is_ready) = self.is_ready.get_mut(index as usize)
            && std::mem::take(is_ready)
        {
            self.ready.retain(|&other| other != index);
        }
    }

    /// Returns when the next queue pair has work: `now_ns` if one is ready.
    pub(crate) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        match self.ready.is_empty() {
            true => self.timers.next_ns(),
            false => Some(now_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_is_ready_once_however_often_it_is_woken() {
        let mut schedule = Schedule::default();
        schedule.set_timer(3, Some(50));
        schedule.wake(3);
        schedule.wake(7);
        schedule.wake(3);
        schedule.expire(50);
        assert_eq!(schedule.ready_count(), 2);
        assert_eq!(schedule.next_ns(60), Some(60));
        assert_eq!(schedule.take_ready(), Some(3));
        assert_eq!(schedule.take_ready(), Some(7));
        assert_eq!((schedule.take_ready(), schedule.next_ns(60)), (None, None));
    }

    #[test]
    fn a_removed_queue_pair_has_nothing_to_do() {
        let mut schedule = Schedule::default();
        schedule.wake(1);
        schedule.wake(2);
        schedule.set_timer(1, Some(5));
        schedule.remove(1);
        schedule.remove(9);
        assert_eq!(schedule.take_ready(), Some(2));
        schedule.expire(10);
        assert_eq!(schedule.next_ns(10), None);
    }
}
