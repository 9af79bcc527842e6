//! The mutexes of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose value is consistent even after a panic of another thread.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
