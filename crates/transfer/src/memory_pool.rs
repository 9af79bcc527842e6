//! The memory that all transfers of a receiver share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory for messages in flight of all transfers that a receiver serves at once. Clones share it.
///
/// Half of it is divided equally among the places for transfers, and belongs to whoever has a place. So no
/// transfer waits for the memory of another. The other half is for those that need more, in equal shares: one
/// transfer alone can have all of it, and gives back what exceeds its share when others come.
#[derive(Clone, Debug)]
pub struct MemoryPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// What each place has for itself.
    own_bytes: u64,
    /// What all transfers share.
    common_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    transfers: u64,
    /// Bytes of the common half that are in use.
    used_bytes: u64,
}

/// The part of one transfer, which returns all of it when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    pool: MemoryPool,
    held_bytes: u64,
}

impl MemoryPool {
    /// Divides this memory among at most `places` transfers.
    #[must_use]
    pub fn new(bytes: u64, places: usize) -> Self {
        let places = u64::try_from(places).unwrap_or(u64::MAX).max(1);
        let own_bytes = bytes / 2 / places;
        Self(Arc::new(Pool {
            own_bytes,
            common_bytes: bytes - own_bytes * places,
            state: Mutex::default(),
        }))
    }

    pub(crate) fn join(&self) -> MemoryShare {
        self.state().transfers += 1;
        MemoryShare {
            pool: self.clone(),
            held_bytes: 0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryShare {
    /// Takes this many bytes, if they are free and within the share of this transfer.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let held_bytes = self.held_bytes.saturating_add(bytes);
        let more = self.of_common(held_bytes) - self.of_common(self.held_bytes);
        let mut state = self.pool.state();
        let share = self.pool.0.common_bytes / state.transfers.max(1);
        if more > self.pool.0.common_bytes - state.used_bytes || self.of_common(held_bytes) > share
        {
            return false;
        }
        state.used_bytes += more;
        drop(state);
        self.held_bytes = held_bytes;
        true
    }

    /// Whether this transfer has more than its share, since others have come.
    pub(crate) fn exceeds(&self) -> bool {
        let share = self.pool.0.common_bytes / self.pool.state().transfers.max(1);
        self.of_common(self.held_bytes) > share
    }

    /// Gives this many bytes back.
    pub(crate) fn give(&mut self, bytes: u64) {
        let held_bytes = self.held_bytes.saturating_sub(bytes);
        self.pool.state().used_bytes -=
            self.of_common(self.held_bytes) - self.of_common(held_bytes);
        self.held_bytes = held_bytes;
    }

    /// What a transfer that holds this many bytes has of the common half.
    fn of_common(&self, held_bytes: u64) -> u64 {
        held_bytes.saturating_sub(self.pool.0.own_bytes)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.give(self.held_bytes);
        self.pool.state().transfers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_transfer_has_all_but_what_belongs_to_other_places() {
        let pool = MemoryPool::new(160, 8);
        let mut first = pool.join();
        // 10 for each place, and 80 for all.
        assert!(first.take(90));
        assert!(!first.take(1));
        assert!(!first.exceeds(), "nobody else is there");
        let mut second = pool.join();
        assert!(second.take(10), "its own");
        assert!(!second.take(1), "the first one has the rest");
        assert!(first.exceeds());
        while first.exceeds() {
            first.give(10);
        }
        assert!(second.take(40));
        assert!(!second.exceeds() && !second.take(1));
        drop(first);
        assert!(second.take(40), "it is alone");
        drop(second);
        assert!(pool.join().take(90), "all is given back");
    }

    #[test]
    fn the_sum_of_all_is_bounded() {
        let pool = MemoryPool::new(1000, 4);
        let mut all = [(); 4].map(|()| pool.join());
        let held = |share: &mut MemoryShare| (0..2000).filter(|_| share.take(1)).count();
        let sum: usize = all.iter_mut().map(held).sum();
        assert_eq!(sum, 1000);
    }
}
