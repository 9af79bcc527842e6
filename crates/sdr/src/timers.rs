//! When to send each message again.

use crate::sparse::Sparse;

/// At most one time for each message, in nanoseconds.
pub(crate) struct Timers {
    times: Sparse<u64, u64>,
    /// The same as pairs of time and message, the earliest first.
    order: Sparse<(u64, u64), ()>,
}

impl Timers {
    pub(crate) const fn new() -> Self {
        Self {
            times: Sparse::new(),
            order: Sparse::new(),
        }
    }

    /// The time replaces an earlier one.
    pub(crate) fn set(&mut self, message: u64, at_ns: u64) {
        self.remove(message);
        self.times.insert(message, at_ns);
        self.order.insert((at_ns, message), ());
    }

    pub(crate) fn remove(&mut self, message: u64) {
        if let Some(at_ns) = self.times.remove(message) {
            self.order.remove((at_ns, message));
        }
    }

    /// The message with the earliest time, if this time has come.
    pub(crate) fn due(&self, now_ns: u64) -> Option<u64> {
        let (at_ns, message) = self.order.first()?;
        (at_ns <= now_ns).then_some(message)
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.order.first().map(|(at_ns, _)| at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_comes_first_and_a_message_has_one() {
        let mut timers = Timers::new();
        timers.set(7, 30);
        timers.set(8, 20);
        timers.set(7, 10);
        assert_eq!((timers.next_ns(), timers.due(9)), (Some(10), None));
        assert_eq!(timers.due(10), Some(7));
        timers.set(7, 40);
        assert_eq!(timers.due(40), Some(8));
        timers.remove(8);
        assert_eq!((timers.next_ns(), timers.due(40)), (Some(40), Some(7)));
        timers.remove(7);
        assert_eq!((timers.next_ns(), timers.due(u64::MAX)), (None, None));
    }
}
