//! Which temporary files the transfers of this process use.
//!
//! A sender that has lost its network is started again, while the receiver still waits for the first one. The
//! later transfer then takes over what it can go on with (P8.8). If the first sender is heard, the first transfer
//! refuses, and the later one starts at the first byte. Temporary files without a lock are listed too, so that
//! another transfer does not take them for those of a killed receiver.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use super::SinkError;
use super::locks::lock;
use super::status::Id;

static HELD: LazyLock<Mutex<HashMap<Id, Wanted>>> = LazyLock::new(Mutex::default);

/// A sender that is silent for this time has most likely lost its network.
const SILENT: Duration = Duration::from_secs(3);
/// Packets that a sender has sent before it was killed can still wait in a queue of the path or of this host for
/// this time. They do not show that the sender is there.
const QUEUED: Duration = Duration::from_secs(1);

/// Whether a later transfer wants a file of a transfer. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Arc<Mutex<Demand>>);

#[derive(Debug, Default)]
struct Demand {
    /// When a later transfer asked for a file, if it waits for the answer.
    since: Option<Instant>,
    /// How many times the answer was no.
    refusals: u64,
}

impl Wanted {
    /// Answers a later transfer of the same peer that wants a file of this transfer. If the sender of this transfer
    /// is still heard a second after that transfer asked, this transfer keeps the file.
    ///
    /// # Errors
    /// [`SinkError::TakenOver`] if the sender has been silent for some seconds: this transfer must end.
    pub fn answer(&self, heard_at: Instant, now: Instant) -> Result<(), SinkError> {
        let mut demand = lock(&self.0);
        match demand.since {
            Some(since) if heard_at > since + QUEUED => {
                demand.since = None;
                demand.refusals += 1;
                Ok(())
            }
            Some(_) if now.saturating_duration_since(heard_at) >= SILENT => {
                Err(SinkError::TakenOver)
            }
            _ => Ok(()),
        }
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A transfer that was asked for a file.
#[derive(Debug)]
pub(super) struct Asked {
    user: Wanted,
    /// How many times it had refused before.
    refusals: u64,
}

impl Asked {
    /// Whether that transfer keeps the file.
    pub(super) fn has_refused(&self) -> bool {
        lock(&self.user.0).refusals != self.refusals
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
        lock(&HELD).insert(id, by.clone());
        Self { id, by: by.clone() }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut held = lock(&HELD);
        if held.get(&self.id).is_some_and(|by| by.is(&self.by)) {
            held.remove(&self.id);
        }
    }
}

/// Asks the transfer of this process that uses a file to leave it to `by`; `None` if there is no other one.
pub(super) fn want(id: Id, by: &Wanted) -> Option<Asked> {
    let user = lock(&HELD).get(&id).filter(|user| !user.is(by))?.clone();
    let mut demand = lock(&user.0);
    demand.since.get_or_insert_with(Instant::now);
    let refusals = demand.refusals;
    drop(demand);
    Some(Asked { user, refusals })
}

/// Whether a transfer of this process uses a file.
pub(super) fn is_in_use(id: Id) -> bool {
    lock(&HELD).contains_key(&id)
}

#[cfg(test)]
mod tests {
    use super::super::status::Status;
    use super::*;

    /// What a killed sender has sent arrives after the later transfer has asked. This is no sign of life.
    #[test]
    fn queued_packets_of_a_killed_sender_keep_no_file() {
        let file = tempfile::tempfile().expect("file");
        let id = Status::of_file(&file).expect("status").id;
        let first = Wanted::default();
        let _in_use = InUse::begin(id, &first);
        let asked = want(id, &Wanted::default()).expect("the first transfer has it");
        let now = Instant::now();
        let last = now + QUEUED / 2;
        first.answer(last, last).expect("too early to say");
        assert!(!asked.has_refused());
        first
            .answer(last, last + SILENT)
            .expect_err("nothing comes any more");
        let alive = now + 2 * QUEUED;
        first.answer(alive, alive).expect("its sender is there");
        assert!(asked.has_refused());
    }
}
