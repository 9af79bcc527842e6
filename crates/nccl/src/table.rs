//! What NCCL's pointers name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::failure::Failure;

/// Numbers are never used twice, in no table.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The next number. It is not zero.
pub(crate) fn next_number() -> usize {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Objects of one kind, by numbers.
pub(crate) struct Table<T> {
    what: &'static str,
    entries: RwLock<HashMap<usize, Arc<T>>>,
}

impl<T> Table<T> {
    /// `what` is the name of the kind for people.
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            entries: RwLock::default(),
        }
    }

    /// Adds an object, and returns its number.
    pub(crate) fn add(&self, object: Arc<T>) -> usize {
        let number = next_number();
        self.write().insert(number, object);
        number
    }

    pub(crate) fn get(&self, number: usize) -> Result<Arc<T>, Failure> {
        let found = self.read().get(&number).cloned();
        found.ok_or_else(|| self.missing(number))
    }

    pub(crate) fn remove(&self, number: usize) -> Result<Arc<T>, Failure> {
        let removed = self.write().remove(&number);
        removed.ok_or_else(|| self.missing(number))
    }

    /// Removes all objects that are not wanted.
    pub(crate) fn keep(&self, mut is_wanted: impl FnMut(&T) -> bool) {
        self.write().retain(|_, object| is_wanted(object));
    }

    fn missing(&self, number: usize) -> Failure {
        Failure::argument(format!(
            "{number} is no {}: it was closed, or NCCL has mixed it up",
            self.what
        ))
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<usize, Arc<T>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<usize, Arc<T>>> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}
