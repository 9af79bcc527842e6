//! The memory that all transfers of a receiver share.

use std::sync::{Arc, Mutex};

use farwrite::fabric::threads::lock;
use farwrite_files::{Detail, Entry, MAX_ENTRIES, MAX_NAMES_BYTES};

/// The memory for messages in flight of all transfers that a receiver serves at once. Clones share it.
///
/// Half of it is divided equally among the places for transfers, and belongs to whoever has a place. So no
/// transfer waits for that of another. The other half is for those that need more, in equal shares: one
/// transfer alone can have all of it, and gives back what exceeds its share when others come. Where the part of
/// a place is smaller than a buffer, the first buffer of a transfer needs the other half too, and a transfer
/// that finds no room for it is refused.
///
/// The lists of files have a pool of their own, of the same kind. So all lists together take no more memory than
/// the longest list of a receiver with one place.
#[derive(Clone, Debug)]
pub struct MemoryPool {
    messages: Arc<Pool>,
    lists: Arc<Pool>,
}

/// The most bytes of lists of files, as [`list_bytes`] counts them: the longest list that a sender can have.
const LISTS_BYTES: u64 = MAX_ENTRIES as u64 * ENTRY_BYTES + MAX_NAMES_BYTES;
/// What an entry of a list takes at most besides its name and target.
const ENTRY_BYTES: u64 = 64;
/// What the details of an entry take at most besides their attributes and extents, and what an attribute takes
/// besides its name and value.
const DETAIL_BYTES: u64 = 192;
const XATTR_BYTES: u64 = 128;

#[derive(Debug)]
struct Pool {
    /// What each place has for itself.
    own_bytes: u64,
    /// What all transfers share.
    common_bytes: u64,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    transfers: u64,
    /// Bytes of the common half that are in use.
    used_bytes: u64,
}

/// The part of one transfer, which returns all of it when it is dropped.
#[derive(Debug)]
pub struct MemoryShare {
    pool: Arc<Pool>,
    held_bytes: u64,
}

impl MemoryPool {
    /// Divides this memory among at most `places` transfers.
    #[must_use]
    pub fn new(bytes: u64, places: usize) -> Self {
        Self {
            messages: Pool::new(bytes, places),
            lists: Pool::new(LISTS_BYTES, places),
        }
    }

    /// Takes memory for a stream that is stored, until the value is dropped; `None` if others have it.
    #[must_use]
    pub fn hold(&self, bytes: u64) -> Option<MemoryShare> {
        let mut share = self.join();
        share.take(bytes).then_some(share)
    }

    /// Returns the part of a transfer for its messages.
    pub(crate) fn join(&self) -> MemoryShare {
        self.messages.join()
    }

    /// Returns the part of a transfer for its list of files.
    pub(crate) fn join_lists(&self) -> MemoryShare {
        self.lists.join()
    }
}

/// The memory that these entries take in a list.
pub(crate) fn list_bytes(entries: &[Entry]) -> u64 {
    let bytes = |entry: &Entry| (entry.name.len() + entry.kind.target_bytes()) as u64;
    entries.iter().map(|it| ENTRY_BYTES + bytes(it)).sum()
}

/// The memory that these details take in a list.
pub(crate) fn detail_bytes(details: &[Detail]) -> u64 {
    let bytes = |detail: &Detail| {
        let xattrs = detail.xattrs.iter();
        let xattrs = xattrs.map(|it| XATTR_BYTES + (it.name.len() + it.value.len()) as u64);
        let extents = detail.data.as_deref().unwrap_or_default();
        DETAIL_BYTES + xattrs.sum::<u64>() + size_of_val(extents) as u64
    };
    details.iter().map(bytes).sum()
}

impl Pool {
    fn new(bytes: u64, places: usize) -> Arc<Self> {
        let places = u64::try_from(places).unwrap_or(u64::MAX).max(1);
        let own_bytes = bytes / 2 / places;
        Arc::new(Self {
            own_bytes,
            common_bytes: bytes - own_bytes * places,
            state: Mutex::default(),
        })
    }

    fn join(self: &Arc<Self>) -> MemoryShare {
        lock(&self.state).transfers += 1;
        MemoryShare {
            pool: Arc::clone(self),
            held_bytes: 0,
        }
    }
}

impl MemoryShare {
    /// Takes this many bytes, if they are free and within the share of this transfer. What it takes first needs
    /// only be free: otherwise many that come at once could make all shares too small for a buffer.
    pub(crate) fn take(&mut self, bytes: u64) -> bool {
        let held_bytes = self.held_bytes.saturating_add(bytes);
        let more = self.of_common(held_bytes) - self.of_common(self.held_bytes);
        let mut state = lock(&self.pool.state);
        let share = self.pool.common_bytes / state.transfers.max(1);
        let is_over = self.held_bytes > 0 && self.of_common(held_bytes) > share;
        if is_over || more > self.pool.common_bytes - state.used_bytes {
            return false;
        }
        state.used_bytes += more;
        drop(state);
        self.held_bytes = held_bytes;
        true
    }

    /// Whether this transfer could take this many bytes more if it were alone.
    pub(crate) fn fits_alone(&self, bytes: u64) -> bool {
        self.of_common(self.held_bytes.saturating_add(bytes)) <= self.pool.common_bytes
    }

    /// Whether this transfer has more than its share, since others have come.
    pub(crate) fn exceeds(&self) -> bool {
        let share = self.pool.common_bytes / lock(&self.pool.state).transfers.max(1);
        self.of_common(self.held_bytes) > share
    }

    /// Gives this many bytes back.
    pub(crate) fn give(&mut self, bytes: u64) {
        let held_bytes = self.held_bytes.saturating_sub(bytes);
        lock(&self.pool.state).used_bytes -=
            self.of_common(self.held_bytes) - self.of_common(held_bytes);
        self.held_bytes = held_bytes;
    }

    /// What a transfer that holds this many bytes has of the common half.
    fn of_common(&self, held_bytes: u64) -> u64 {
        held_bytes.saturating_sub(self.pool.own_bytes)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.give(self.held_bytes);
        lock(&self.pool.state).transfers -= 1;
    }
}

#[cfg(test)]
mod tests {
    use farwrite_files::{Extent, Xattr};

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
    fn first_buffers_that_exceed_a_share_are_as_many_as_fit() {
        let pool = MemoryPool::new(160, 8);
        let mut all = [(); 8].map(|()| pool.join());
        // A buffer of 30 bytes takes 20 of the 80 bytes for all; the share of each is 10.
        let taken = all
            .iter_mut()
            .filter_map(|share| share.take(30).then_some(()));
        assert_eq!(taken.count(), 4);
        assert!(all[0].exceeds() && !all[0].take(1));
    }

    #[test]
    fn a_list_has_all_with_one_place_and_half_among_many() {
        let mut alone = MemoryPool::new(0, 1).join_lists();
        assert!(alone.take(LISTS_BYTES) && !alone.fits_alone(1));
        let pool = MemoryPool::new(0, 64);
        let mut first = pool.join_lists();
        assert!(!first.fits_alone(LISTS_BYTES));
        assert!(first.take(LISTS_BYTES / 2));
        let mut second = pool.join_lists();
        // 40,000 files with names of 30 bytes.
        assert!(second.take(40_000 * (ENTRY_BYTES + 30)), "its own part");
        assert!(second.fits_alone(LISTS_BYTES / 4) && !second.take(LISTS_BYTES / 4));
    }

    #[test]
    fn attributes_and_extents_count() {
        let mut detail = Detail::default();
        let least = detail_bytes(std::slice::from_ref(&detail));
        detail.xattrs = vec![Xattr {
            name: b"user.note".to_vec(),
            value: vec![0; 1000],
        }];
        detail.data = Some(vec![
            Extent {
                hole_bytes: 1,
                data_bytes: 1
            };
            100
        ]);
        assert!(detail_bytes(&[detail]) >= least + 1009 + 1600);
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
