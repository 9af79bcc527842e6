//! The queue pairs of an endpoint, stored in a slab.

use std::sync::Arc;

use slab::Slab;

use crate::error::Error;
use crate::handle::QueuePair;
use crate::pair::Pair;

/// Maximum number of queue pairs. An index must fit into a
/// [`CompletionContext`](crate::completion_context::CompletionContext).
const MOST: usize = 1 << 24;

/// All queue pairs. A place is reused once its queue pair was destroyed. The serial number
/// distinguishes the old queue pair from the new one.
pub(crate) struct QueuePairs {
    entries: Slab<Entry>,
    /// Never 0, so that no context of an endpoint is 0. Users of a fabric give context 0 to
    /// their own queue pairs.
    next_serial: u32,
}

impl Default for QueuePairs {
    fn default() -> Self {
        Self {
            entries: Slab::new(),
            next_serial: 1,
        }
    }
}

struct Entry {
    serial: u32,
    /// An error: the queue pair failed, and has returned all its resources.
    pair: Result<Box<Pair>, Arc<Error>>,
}

impl QueuePairs {
    /// Returns `None` while there are too many queue pairs.
    pub(crate) fn next_name(&self) -> Option<QueuePair> {
        let place = self.entries.vacant_key();
        let index = u32::try_from(place).ok().filter(|_| place < MOST)?;
        let serial = self.next_serial;
        Some(QueuePair { index, serial })
    }

    /// The name of `pair` must be [`QueuePairs::next_name`].
    pub(crate) fn insert(&mut self, pair: Pair) {
        self.entries.insert(Entry {
            serial: self.next_serial,
            pair: Ok(Box::new(pair)),
        });
        self.next_serial = self.next_serial.wrapping_add(1).max(1);
    }

    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub(crate) fn get(&self, qp: QueuePair) -> Result<&Pair, Error> {
        let entry = self.entries.get(qp.index as usize);
        match entry.filter(|entry| entry.serial == qp.serial) {
            Some(entry) => entry.pair(),
            None => Err(Error::NoSuchQueuePair(qp.serial)),
        }
    }

    pub(crate) fn get_mut(&mut self, qp: QueuePair) -> Result<&mut Pair, Error> {
        let entry = self.entries.get_mut(qp.index as usize);
        match entry.filter(|entry| entry.serial == qp.serial) {
            Some(entry) => entry.pair_mut(),
            None => Err(Error::NoSuchQueuePair(qp.serial)),
        }
    }

    /// Returns the queue pair at an index, if there is one and it is not broken.
    pub(crate) fn at(&self, index: u32) -> Option<&Pair> {
        self.entries.get(index as usize)?.pair().ok()
    }

    /// The same as [`QueuePairs::at`], but mutable.
    pub(crate) fn live(&mut self, index: u32) -> Option<&mut Pair> {
        self.entries.get_mut(index as usize)?.pair_mut().ok()
    }

    /// Returns all queue pairs that are not broken.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pair> {
        self.entries
            .iter()
            .filter_map(|(_, entry)| entry.pair().ok())
    }

    /// Removes a queue pair and returns it. Returns `None` for a broken queue pair, which has
    /// already ended.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`].
    pub(crate) fn remove(&mut self, qp: QueuePair) -> Result<Option<Pair>, Error> {
        if let Err(error @ Error::NoSuchQueuePair(_)) = self.get(qp) {
            return Err(error);
        }
        let removed = self.entries.remove(qp.index as usize).pair;
        Ok(removed.ok().map(|pair| *pair))
    }

    /// Removes a queue pair that failed, and stores the reason in its place.
    pub(crate) fn break_at(&mut self, index: u32, reason: Error) -> Option<Pair> {
        let entry = self.entries.get_mut(index as usize)?;
        let broken = std::mem::replace(&mut entry.pair, Err(Arc::new(reason)));
        broken.ok().map(|pair| *pair)
    }
}

impl Entry {
    fn pair(&self) -> Result<&Pair, Error> {
        let pair = self.pair.as_deref();
        pair.map_err(|reason| broken(self.serial, reason))
    }

    fn pair_mut(&mut self) -> Result<&mut Pair, Error> {
        let pair = self.pair.as_deref_mut();
        pair.map_err(|reason| broken(self.serial, reason))
    }
}

fn broken(serial: u32, reason: &Arc<Error>) -> Error {
    Error::BrokenQueuePair {
        queue_pair: serial,
        reason: Arc::clone(reason),
    }
}
