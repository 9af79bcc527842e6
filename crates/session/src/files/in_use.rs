//! Which temporary files the transfers of this process use.
//!
//! A sender that has lost its network is started again, while the receiver still waits for the first one. The
//! later transfer then takes over what it can go on with (P8.8). Temporary files without a lock are listed too,
//! so that another transfer does not take them for those of a killed receiver.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::status::Id;

type Held = HashMap<Id, Wanted>;

static HELD: LazyLock<Mutex<Held>> = LazyLock::new(Mutex::default);

/// Whether a later transfer wants a file of a transfer. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted(Arc<AtomicBool>);

impl Wanted {
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A transfer of this process uses a file until this is dropped.
#[derive(Debug)]
pub(super) struct InUse {
    id: Id,
    by: Wanted,
}

impl InUse {
    pub(super) fn begin(id: Id, by: &Wanted) -> Self {
        held().insert(id, by.clone());
        Self { id, by: by.clone() }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut held = held();
        if held.get(&self.id).is_some_and(|by| by.is(&self.by)) {
            held.remove(&self.id);
        }
    }
}

/// Says that a later transfer wants a file. Returns whether another transfer of this process uses it.
pub(super) fn want(id: Id, by: &Wanted) -> bool {
    let held = held();
    let user = held.get(&id).filter(|user| !user.is(by));
    if let Some(user) = user {
        user.0.store(true, Ordering::Relaxed);
    }
    user.is_some()
}

/// Whether a transfer of this process uses a file.
pub(super) fn is_in_use(id: Id) -> bool {
    held().contains_key(&id)
}

/// A thread that panics leaves the list consistent.
fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}
