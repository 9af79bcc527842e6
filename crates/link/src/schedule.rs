//! Values that change at known times.

use alloc::vec::Vec;

/// A piecewise constant value over time.
#[derive(Clone, Debug)]
pub(crate) struct Schedule<T> {
    first: T,
    /// Later values, each with the time from which it applies, in ascending order.
    changes: Vec<(u64, T)>,
}

impl<T: Copy> Schedule<T> {
    /// A value that never changes.
    pub(crate) fn constant(value: T) -> Self {
        Self {
            first: value,
            changes: Vec::new(),
        }
    }

    /// `from_ns` must not be before the last change.
    pub(crate) fn change(&mut self, from_ns: u64, value: T) {
        self.changes.push((from_ns, value));
    }

    /// The value at a time, and the time of the next change; `u64::MAX` if there is none.
    pub(crate) fn at(&self, now_ns: u64) -> (T, u64) {
        let passed = self.changes.partition_point(|(from, _)| *from <= now_ns);
        let value = match passed.checked_sub(1) {
            Some(last) => self.changes[last].1,
            None => self.first,
        };
        let until_ns = self.changes.get(passed).map_or(u64::MAX, |(from, _)| *from);
        (value, until_ns)
    }
}
