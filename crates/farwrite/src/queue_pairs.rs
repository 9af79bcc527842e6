//! The queue pairs of an endpoint, by their place in a slab.

use std::sync::Arc;

use slab::Slab;

use crate::error::Error;
use crate::handle::QueuePair;
use crate::pair::Pair;

/// Most queue pairs, so that an index fits into a [`Route`](crate::route::Route).
const MOST: usize = 1 << 24;

/// All queue pairs. A place is used again once its queue pair was destroyed; the serial number
/// distinguishes the old one from the new.
pub(crate) struct QueuePairs {
    entries: Slab<Entry>,
    /// Never 0: no route of ours is the context 0, which users of a fabric give to queue pairs of
    /// their own.
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
    state: State,
}

enum State {
    Live(Box<Pair>),
    /// It could not go on, and has given all that it had back.
    Broken(Arc<Error>),
}

impl QueuePairs {
    /// The name that the next queue pair has; `None` while there are too many.
    pub(crate) fn next_name(&self) -> Option<QueuePair> {
        let place = self.entries.vacant_key();
        let index = u32::try_from(place).ok().filter(|_| place < MOST)?;
        let serial = self.next_serial;
        Some(QueuePair { index, serial })
    }

    /// Adds the queue pair that has [`QueuePairs::next_name`].
    pub(crate) fn insert(&mut self, pair: Pair) {
        self.entries.insert(Entry {
            serial: self.next_serial,
            state: State::Live(Box::new(pair)),
        });
        self.next_serial = self.next_serial.wrapping_add(1).max(1);
    }

    /// A queue pair as its user names it.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`], [`Error::BrokenQueuePair`].
    pub(crate) fn get(&self, qp: QueuePair) -> Result<&Pair, Error> {
        let entry = self.entries.get(qp.index as usize);
        match entry.filter(|entry| entry.serial == qp.serial) {
            Some(entry) => entry.pair(),
            None => Err(Error::NoSuchQueuePair(qp.serial)),
        }
    }

    /// As [`QueuePairs::get`].
    pub(crate) fn get_mut(&mut self, qp: QueuePair) -> Result<&mut Pair, Error> {
        let entry = self.entries.get_mut(qp.index as usize);
        match entry.filter(|entry| entry.serial == qp.serial) {
            Some(entry) => entry.pair_mut(),
            None => Err(Error::NoSuchQueuePair(qp.serial)),
        }
    }

    /// The queue pair at a place, if one lives there.
    pub(crate) fn live(&mut self, index: u32) -> Option<&mut Pair> {
        self.entries.get_mut(index as usize)?.pair_mut().ok()
    }

    /// All that live.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pair> {
        self.entries
            .iter()
            .filter_map(|(_, entry)| entry.pair().ok())
    }

    /// Takes a queue pair out; `None` of a broken one, which has ended before.
    ///
    /// # Errors
    /// [`Error::NoSuchQueuePair`].
    pub(crate) fn remove(&mut self, qp: QueuePair) -> Result<Option<Pair>, Error> {
        if let Err(error @ Error::NoSuchQueuePair(_)) = self.get(qp) {
            return Err(error);
        }
        match self.entries.remove(qp.index as usize).state {
            State::Live(pair) => Ok(Some(*pair)),
            State::Broken(_) => Ok(None),
        }
    }

    /// A queue pair cannot go on: takes it out, and leaves the reason in its place.
    pub(crate) fn break_at(&mut self, index: u32, reason: Error) -> Option<Pair> {
        let entry = self.entries.get_mut(index as usize)?;
        match std::mem::replace(&mut entry.state, State::Broken(Arc::new(reason))) {
            State::Live(pair) => Some(*pair),
            State::Broken(_) => None,
        }
    }
}

impl Entry {
    fn pair(&self) -> Result<&Pair, Error> {
        match &self.state {
            State::Live(pair) => Ok(pair),
            State::Broken(reason) => Err(broken(self.serial, reason)),
        }
    }

    fn pair_mut(&mut self) -> Result<&mut Pair, Error> {
        match &mut self.state {
            State::Live(pair) => Ok(pair),
            State::Broken(reason) => Err(broken(self.serial, reason)),
        }
    }
}

fn broken(serial: u32, reason: &Arc<Error>) -> Error {
    Error::BrokenQueuePair {
        queue_pair: serial,
        reason: Arc::clone(reason),
    }
}
